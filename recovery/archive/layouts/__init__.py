"""How an archive names its objects, and how a segment's files are opened. Begin with `layout`; each is a module."""
