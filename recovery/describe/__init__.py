"""What is in log dirs: replicas and their sizes, room on the volume, cordons; from the dirs or from live brokers."""
