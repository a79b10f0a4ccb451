"""imp behind Ray Serve (extra: ray): replicas with an engine each; whole generations and reads through Ray's proxy.

conf/ray/serve.yaml runs it.
"""
