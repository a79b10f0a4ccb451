"""A client of any imp.v1 server: target, channel, failures, the order of streams, and a model as the library has it."""
