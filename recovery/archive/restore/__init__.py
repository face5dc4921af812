"""Archived partitions back in the log dirs of a stopped broker: `archive restore`."""
