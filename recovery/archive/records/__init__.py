"""Records of archived segments as rows of Arrow. Begin with `read_plan` and `archive_reader`."""
