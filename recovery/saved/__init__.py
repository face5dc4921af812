"""Quarantine afterwards: what runs have saved, taken back by `undo` or purged.

Begin with `undo`; `runs` has what is there.
"""
