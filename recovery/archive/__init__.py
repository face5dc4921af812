"""Archived logs: copies of log dirs, tiered storage; where they lie, how they are laid out, and whether they are sound."""
