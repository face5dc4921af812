"""How an archive names things, and how a segment's files are opened. Begin with `layout`; each layout is a module."""
