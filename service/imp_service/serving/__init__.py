"""What a server needs while it serves one model, without gRPC: its phase, requests, sessions, streams and callers."""
