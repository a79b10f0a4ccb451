"""imp.v1 over gRPC: one servicer for each proto service, one path for every call, one table of errors."""
