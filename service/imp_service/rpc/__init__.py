"""gRPC: one module per service of imp.v1 over one path for every call and one table of errors."""
