"""What brokers know of remote segments: `__remote_log_metadata`, read offline. Begin with `remote_metadata`."""
