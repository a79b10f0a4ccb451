"""One call of gRPC as a servicer sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from imp_service.rpc.encoded import Reply
from imp_service.rpc.statuses import TrailingMetadata
from imp_service.serving.calls import Call, caller_has_gone


@dataclass(slots=True, eq=False, kw_only=True)
class GrpcCall(Call):
    """Sends replies, and has the context for what only gRPC has."""

    context: grpc.aio.ServicerContext[Any, Any]
    # What the head of the reply says.
    head: TrailingMetadata = ()

    @property
    def late_identity(self) -> TrailingMetadata:
        """What of the identity the head did not say. It is sent behind the reply."""
        return tuple(pair for pair in self.identity if pair not in self.head)

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    async def acknowledged(self) -> None:
        """Sends the head before anything is done for the call, if its caller wants to know that this server has it."""
        if self.acknowledge:
            await self.begin_reply()

    async def _send_identity(self) -> None:
        """Sends the identity as initial metadata. Afterwards gRPC does not retry the call transparently.

        An early head names only the server.
        """
        self.head = (("imp-instance-id", self.instance_id),) if self.acknowledge else self.identity
        await self.context.send_initial_metadata(self.head)

    async def write(self, message: Reply) -> None:
        """Sends a message of a stream. Waits while the caller does not read."""
        if not self.reply_has_begun:
            await self.begin_reply()
        try:
            await self.context.write(message.SerializeToString())
        except Exception as error:
            raise caller_has_gone() from error

    async def abort(self, code: grpc.StatusCode, message: str, trailing: TrailingMetadata = ()) -> NoReturn:
        """Ends the call with a status. Raises gRPC's AbortError."""
        self.own_code = code.name
        try:
            await self.context.abort(code, message, trailing)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            raise caller_has_gone() from error
        raise AssertionError("gRPC's abort() raises")
