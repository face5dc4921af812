"""Kafka's on-disk files as values, both ways. Opens no file: bytes in, values out, and back."""
