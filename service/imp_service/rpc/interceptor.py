"""Authentication of the calls that do not go through CallPath: services of libraries, and unknown methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from imp_service.rpc.policies import policy_of
from imp_service.serving.refusal import Refusal
from imp_service.serving.security.authentication import Authentication

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Checks the calls that CallPath does not check. A service without a policy is refused."""

    def __init__(
        self,
        authentication: Authentication,
        is_checked: Callable[[str], bool],
        refusal_handler: Callable[[str, Exception], Handler],
    ) -> None:
        self._authentication = authentication
        self._is_checked = is_checked
        self._refusal_handler = refusal_handler

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of the call, or one that refuses it."""
        method = str(handler_call_details.method)
        handler = await continuation(handler_call_details)
        if self._is_checked(method) and handler is not None:
            return handler
        try:
            self._authentication.check(*policy_of(method), tuple(handler_call_details.invocation_metadata))
        except Refusal as refusal:
            # UNIMPLEMENTED, but only for callers with a valid token.
            if handler is None and refusal.reason == "NOT_ALLOWED":
                return None
            return self._refusal_handler(method, refusal)
        return handler
