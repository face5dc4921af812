"""The configuration of a broker: its properties, its topics' settings, its copy of the cluster's metadata.

Values, and pure: bytes come from `recovery.logdir`. Begin with `config`.
"""
