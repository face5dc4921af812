"""What was listed compared with what is expected, by names and sizes alone. Begin with `run`."""
