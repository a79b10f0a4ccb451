"""The HTTP transport: OpenAI's API, probes and the page. Calls take the same path as those over gRPC."""
