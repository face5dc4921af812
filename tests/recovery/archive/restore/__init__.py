"""Archived partitions back in log dirs."""
