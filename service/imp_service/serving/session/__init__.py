"""The open sessions of a server: who owns them, the commands on them, and when they expire."""
