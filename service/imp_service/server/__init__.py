"""The process of a server: every listener, from its start to its end."""
