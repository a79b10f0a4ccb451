"""The HTTP door: the paths that OpenAI's clients call, beside gRPC and over the same path of a call."""
