"""A run over an archive: one course, and the engines that do its work."""
