"""The open sessions of a server: their owners, the commands on them, and their expiry."""
