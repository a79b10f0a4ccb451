"""What a server keeps while it answers: the model, who runs, who waits, sessions. Knows no gRPC."""
