"""Who may call: bearer tokens with roles, and the files that tokens and certificates are read from."""
