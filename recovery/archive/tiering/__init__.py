"""Tiered logs seen from outside: what is copied and what is not, and what retention will delete."""
