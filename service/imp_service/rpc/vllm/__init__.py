"""`vllm.grpc.engine.VllmEngine`, the protocol of vLLM's gRPC server, for gateways that speak it.

Needs the package smg-grpc-proto. Nothing imports this package unless `listen.compat` has "vllm".
"""
