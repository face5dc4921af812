"""Records of archived segments as Arrow rows. Begin with `read_plan` and `archive_reader`."""
