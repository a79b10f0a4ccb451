"""What each service asks of its callers, and what it asks of the model. A service without a row is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# A role that every known caller has.
ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Policy:
    """Of every method of one service."""

    role: str
    # Refused while the model is loading or the server drains.
    needs_model: bool = False
    # It asks the model for output: counted as a request, and waited for by a drain.
    is_request: bool = False
    # Answers without a token where auth.public_health is on.
    is_health: bool = False


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

NO_POLICY = Policy("nobody")
