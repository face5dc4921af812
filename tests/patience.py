"""How long tests wait for what must come."""

LONGEST_WAIT_SECONDS = 600.0
"""Only what hangs takes as long: on a machine with other work a process may need minutes to come up."""
