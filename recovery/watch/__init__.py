"""Watching a run: its events, and what receives them: gauges, the terminal, log lines, HTTP.

The algorithm never sees an observer. Begin with `events`.
"""
