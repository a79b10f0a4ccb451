"""A server of one model without its transports: its phase, requests, sessions, streams and callers."""
