"""A log dir seen from outside: which one, whose, locked by whom, and what lies in it. No segment is read.

Begin with `inventory`.
"""
