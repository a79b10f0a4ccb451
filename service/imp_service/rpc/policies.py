"""The policy of each gRPC service."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.serving.security.authentication import ANYONE, NO_POLICY, Policy

POLICIES: Mapping[str, Policy] = {
    "imp.v1.InferenceService": Policy("data", needs_model=True, is_request=True),
    "imp.v1.TokenizerService": Policy("read", needs_model=True),
    "imp.v1.ModelService": Policy("read"),
    "imp.v1.AdminService": Policy("admin"),
    "vllm.grpc.engine.VllmEngine": Policy("read"),
    "grpc.channelz.v1.Channelz": Policy("admin"),
    "grpc.health.v1.Health": Policy(ANYONE, is_health=True),
    "grpc.reflection.v1.ServerReflection": Policy(ANYONE),
    "grpc.reflection.v1alpha.ServerReflection": Policy(ANYONE),
}
# The policies of methods that need more, or less, than the rest of their service.
METHOD_POLICIES: Mapping[str, Policy] = {
    # What the model is called and can do, which a caller needs before it generates.
    "/imp.v1.ModelService/GetModelInfo": Policy("read", or_role="data"),
    "/vllm.grpc.engine.VllmEngine/Generate": Policy("data", needs_model=True, is_request=True),
    "/vllm.grpc.engine.VllmEngine/Abort": Policy("data"),
    "/vllm.grpc.engine.VllmEngine/GetModelInfo": Policy("read", or_role="data", needs_model=True),
    "/vllm.grpc.engine.VllmEngine/GetTokenizer": Policy("read", needs_model=True),
    "/vllm.grpc.engine.VllmEngine/HealthCheck": Policy(ANYONE, is_health=True),
}


def policy_of(method: str) -> tuple[Policy, str]:
    """The policy of a method, and the name of its service in refusals."""
    service = method[1:].partition("/")[0]
    policy = METHOD_POLICIES.get(method) or POLICIES.get(service)
    return (NO_POLICY, "this service") if policy is None else (policy, service)
