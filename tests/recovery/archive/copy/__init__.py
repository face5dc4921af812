"""Log dirs copied as they are."""
