"""The front: holds the connections of HTTP clients and has no model; relays calls, and can run an engine process."""
