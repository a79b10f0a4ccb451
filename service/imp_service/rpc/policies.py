"""What a caller needs for each service of gRPC."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.serving.security.authentication import ANYONE, NO_POLICY, Policy

POLICIES: Mapping[str, Policy] = {
    "imp.v1.InferenceService": Policy("data", needs_model=True, is_request=True),
    "imp.v1.TokenizerService": Policy("read", needs_model=True),
    "imp.v1.ModelService": Policy("read"),
    "imp.v1.AdminService": Policy("admin"),
    "grpc.channelz.v1.Channelz": Policy("admin"),
    "grpc.health.v1.Health": Policy(ANYONE, is_health=True),
    "grpc.reflection.v1.ServerReflection": Policy(ANYONE),
    "grpc.reflection.v1alpha.ServerReflection": Policy(ANYONE),
}


def policy_of(method: str) -> tuple[Policy, str]:
    """The policy of a method's service, and what refusals call the service."""
    service = method[1:].partition("/")[0]
    policy = POLICIES.get(service)
    return (NO_POLICY, "this service") if policy is None else (policy, service)
