"""Bytes: opened, mapped, read in windows, dropped from the page cache. Nothing here writes to a log dir.

Begin with `partition_files`, the source that the load reads from, and `windows`, the one way through a log;
`file_system` has the calls.
"""
