"""Archived logs: copies of log dirs, tiered storage; where they are, how they are laid out, whether they are sound."""
