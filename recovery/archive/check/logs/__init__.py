"""Logs only: many small segments read and checked together, as columns. Begin with `log_scan`."""
