"""The command line: a shell that knows the commands' names, and one module for each command."""
