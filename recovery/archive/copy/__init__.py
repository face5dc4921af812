"""Log dirs as they are, copied to a folder or a bucket: `archive copy`."""
