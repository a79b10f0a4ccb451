"""What a server keeps while it serves one model: its phase, requests, sessions, streams. asyncio, but no gRPC."""
