"""Who may call, and over what: bearer tokens with roles, TLS, and the files that both are read from."""
