"""The command line: one module for each command. Argv and the environment are read only here."""
