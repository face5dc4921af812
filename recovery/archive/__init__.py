"""Archived logs: copies of log dirs, tiered storage; where they lie, how they are laid out, whether they are sound."""
