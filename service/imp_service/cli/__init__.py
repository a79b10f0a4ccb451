"""The command line: one module or folder for each command."""
