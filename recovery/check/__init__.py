"""What `verify` does: check every segment of log dirs, flushed ones too, and change nothing.

Begin with `api`, the library call; then `run`, `partition` and `segment`. What is wrong is a `finding`.
"""
