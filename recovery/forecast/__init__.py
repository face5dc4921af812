"""`estimate`: what a restart would have to recover now, and how long that would take. Nothing is written or locked.

Begin with `recovery.forecast.api`.
"""
