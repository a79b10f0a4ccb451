"""Where a server answers: TCP and Unix sockets, and the options of its connections."""
