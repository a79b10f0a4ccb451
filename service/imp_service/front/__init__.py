"""The front: holds the connections of HTTP clients, relays their calls, and joins the halves of broken streams."""
