"""The supervision: keeps an engine process running behind the relay."""
