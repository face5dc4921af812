"""From the present folder to the wanted one: actions in their order, the commit, and both reversed for `undo`.

Pure, like `recovery.load`. Begin with `plan`; `actions` has what a plan is made of.
"""
