"""Where an archive is: a tree of objects, in a folder, a bucket or a list. Begin with `store`."""
