"""The command line: one module for each command. Only here are argv and the environment read."""
