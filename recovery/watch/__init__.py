"""Watching a run: its events, and who is told of them: gauges, the terminal, log lines, HTTP.

The algorithm never sees an observer. Begin with `events`.
"""
