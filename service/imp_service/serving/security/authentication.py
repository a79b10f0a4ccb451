"""Checks a call's bearer token: whether its roles allow what is called, and which tenant it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imp_service.serving.refusal import Refusal
from imp_service.serving.request_metadata import TENANT_KEY
from imp_service.serving.security.tokens import Token

# A role that every valid token has.
ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Policy:
    """The requirements of a call."""

    role: str
    # Another role that also suffices.
    or_role: str | None = None
    # Refused while the model is loading or the server drains.
    needs_model: bool = False
    # It generates output: it counts as a request, and a drain waits for it.
    is_request: bool = False
    # Answers without a token where auth.public_health is on.
    is_health: bool = False
    # Never requires a token: the answer is the same for all.
    is_public: bool = False


# The policy of services without a row: no token has its role.
NO_POLICY = Policy("nobody")


Metadata = Sequence[tuple[str, str | bytes]]
SCHEME = "bearer"


class Authentication:
    """Without tokens everyone who can connect may call everything that the listener has."""

    def __init__(self, find: Callable[[str], Token | None] | None, *, public_health: bool) -> None:
        """`find` returns the token that a caller sent; None: callers need no token."""
        self._find = find
        self._public_health = public_health

    def check(self, policy: Policy, called: str, metadata: Metadata) -> str | None:
        """The tenant of the caller's token; None if the call's metadata decides. Raises the refusal.

        `called` names what has the policy.
        """
        if self._find is None or policy.is_public or (policy.is_health and self._public_health):
            return None
        token = _token(self._find, metadata)
        if not may_call(token, policy):
            raise Refusal("NOT_ALLOWED", f"this token may not call {called}")
        return _tenant(token, metadata)


def _token(find: Callable[[str], Token | None], metadata: Metadata) -> Token:
    values = [value for key, value in metadata if key == "authorization"]
    if not values:
        raise Refusal("TOKEN_MISSING", "no token: expected metadata authorization: Bearer TOKEN")
    scheme, _, word = str(values[0]).partition(" ")
    token = find(word)
    if len(values) > 1 or scheme.lower() != SCHEME or token is None:
        raise Refusal("TOKEN_INVALID", "this server does not know the token")
    return token


def may_call(token: Token, policy: Policy) -> bool:
    """Whether the token has a role that the policy requires."""
    return policy.role == ANYONE or policy.role in token.roles or policy.or_role in token.roles


def _tenant(token: Token, metadata: Metadata) -> str | None:
    """The tenant of the call. A token of several tenants requires that the call names one; a token of all does not."""
    if token.tenants is None:
        return None
    named = [value for key, value in metadata if key == TENANT_KEY]
    if not named and len(token.tenants) == 1:
        return token.tenants[0]
    if not named:
        raise Refusal("NOT_ALLOWED", f"{TENANT_KEY}: not given, expected one of this token's tenants")
    if any(value not in token.tenants for value in named):
        raise Refusal("NOT_ALLOWED", f"{TENANT_KEY}: not a tenant of this token")
    return None
