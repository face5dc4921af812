"""The cases that failed once: each is run in every suite for ever."""

FOUND = (
    (
        "shrinking",
        "overflowed segment",
        "cut-after@82:7",
        "cut between the look at its size and the mapping of it",
    ),
    (
        "faults",
        "log start beyond the end",
        "EIO@80",
        "a checkpoint that could not be looked at was taken for missing",
    ),
)
"""Kind, state, point, and what it was."""
