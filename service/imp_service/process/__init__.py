"""Programs that the service runs in processes of their own, within limits of time and memory."""
