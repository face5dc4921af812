"""What is expected against what was listed: names and sizes alone. Begin with `run`."""
