"""From what is there to what shall be: actions in their order, the commit, and both read backwards for `undo`.

Pure, as `recovery.load` is. Begin with `plan`; `actions` has what a plan is made of.
"""
