"""Quarantine afterwards: what runs have saved, taken back by `undo` or purged.

Begin with `undo`; `runs` lists what is there.
"""
