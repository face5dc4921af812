"""The driver of a recovery: all log dirs of a broker, their threads and processes, the hand-off and the report.

Begin with `api`, the library call; then `run`, `log_dir_run` and `partition_run`, each one level below.
"""
