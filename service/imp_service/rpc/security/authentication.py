"""Who calls, and whether they may: bearer tokens against the token file, roles by service, tenants by token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import grpc

from imp_service.rpc.requests.request_metadata import TENANT_KEY
from imp_service.rpc.security.policies import ANYONE, POLICIES, Policy
from imp_service.rpc.security.reloaded_files import ReloadedFiles
from imp_service.rpc.security.tokens import Token, Tokens
from imp_service.serving.refusal import Refusal

Metadata = Sequence[tuple[str, str | bytes]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
SCHEME = "bearer"


class Authentication:
    """Without a token file everyone who can connect may call everything that is served there."""

    def __init__(self, tokens: ReloadedFiles[Tokens] | None, *, public_health: bool) -> None:
        self._tokens = tokens
        self._public_health = public_health

    def check(self, method: str, metadata: Metadata) -> str | None:
        """The tenant that the caller's token stands for, None where its call says; raises the refusal."""
        service = method[1:].partition("/")[0]
        policy = POLICIES.get(service)
        if self._tokens is None or (policy is not None and policy.is_health and self._public_health):
            return None
        token = self._token(self._tokens.value, metadata)
        if policy is None or not may_call(token, policy):
            raise Refusal("NOT_ALLOWED", f"this token may not call {service if policy else 'this service'}")
        return _tenant(token, metadata)

    def _token(self, tokens: Tokens, metadata: Metadata) -> Token:
        values = [value for key, value in metadata if key == "authorization"]
        if not values:
            raise Refusal("TOKEN_MISSING", "no token: expected metadata authorization: Bearer TOKEN")
        scheme, _, word = str(values[0]).partition(" ")
        token = tokens.find(word)
        if len(values) > 1 or scheme.lower() != SCHEME or token is None:
            raise Refusal("TOKEN_INVALID", "the token is not known here")
        return token


def may_call(token: Token, policy: Policy) -> bool:
    """Whether the token has the role that the service asks for."""
    return policy.role == ANYONE or policy.role in token.roles


def _tenant(token: Token, metadata: Metadata) -> str | None:
    """A token of one tenant speaks for it; one of several must say for which; one of all may say nothing."""
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


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """For services that come from libraries, and for methods that nobody serves: the one path of a call checks its own.

    Whatever is added to a server later is closed until it has a policy.
    """

    def __init__(
        self,
        authentication: Authentication,
        is_checked: Callable[[str], bool],
        refusing: Callable[[str, Exception], Handler],
    ) -> None:
        self._authentication = authentication
        self._is_checked = is_checked
        self._refusing = refusing

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of the call: one that refuses it, where it may not be made."""
        method = str(handler_call_details.method)
        handler = await continuation(handler_call_details)
        if self._is_checked(method) and handler is not None:
            return handler
        try:
            self._authentication.check(method, tuple(handler_call_details.invocation_metadata))
        except Refusal as refusal:
            # Of what is not served here, only known callers are told so.
            if handler is None and refusal.reason == "NOT_ALLOWED":
                return None
            return self._refusing(method, refusal)
        return handler
