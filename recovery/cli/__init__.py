"""The command line: one module for each command. Argv is read only here. Begin with `main`, then `recover`."""
