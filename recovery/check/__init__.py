"""What `verify` does: every segment of log dirs checked, flushed ones too, and nothing changed.

Begin with `api`, the library call; then `run`, `partition` and `segment`. What is wrong is a `finding`.
"""
