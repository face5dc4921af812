"""Kafka's on-disk files as values, both ways. Opens nothing: bytes in, values out, and back."""
