"""imp.v1 over gRPC: one servicer per proto service, one path for every call, one table of errors."""
