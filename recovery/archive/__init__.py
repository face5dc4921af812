"""Archived logs: copies of log dirs, tiered storage; where they are, how they are laid out, whether they are sound.

It may read stores, and write only to an output, or in place after quarantine.
Begin with `check`, then `layouts/layout`.
"""
