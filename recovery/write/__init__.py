"""The only writer: quarantine first, then one durable step after another, and a journal of what is done.

Begin with `apply`; `durable` has the calls.
"""
