"""ForkSession, TruncateSession and ReleaseSession."""

from __future__ import annotations

import asyncio
from typing import cast

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.requests.check_request import checked
from imp_service.rpc.imp_v1.requests.read_requests import request_digest
from imp_service.serving.calls import Call
from imp_service.serving.refusal import Refusal
from imp_service.serving.server_state import ServerState
from imp_service.serving.session.commands import begin_fork, begin_truncate, check_end
from imp_service.serving.session.held_session import HeldSession, StoredReply


class SessionChanges:
    """Changes sessions of one server. If the caller leaves, its change is done or has not begun."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def fork(self, request: pb.ForkSessionRequest, call: Call) -> pb.ForkSessionResponse:
        """Copies a session. An equal call returns the same copy until the copy is used."""
        await checked(request, call.n_request_bytes, self._state)
        digest = request_digest(request)
        made = self._made_before(request, digest, call)
        if made is not None:
            return made
        sessions = self._state.sessions
        parent = sessions.take(call.tenant, request.session_id)
        try:
            position = request.position if request.HasField("position") else parent.position
            check_end(parent, position)
            copy = await sessions.reserve_fork(parent, request.new_session_id, position)
        except BaseException:
            sessions.leave(parent)
            raise
        copy.forked_at = position
        reply = pb.ForkSessionResponse(session_id=copy.session_id, position=position)
        if request.new_session_id:
            copy.stored = StoredReply(digest, reply)
        try:
            ended = begin_fork(sessions, parent, copy)
        except BaseException:
            sessions.leave(parent)
            sessions.abandon(copy)
            raise
        try:
            failure = await ended
        except asyncio.CancelledError:
            if not request.new_session_id:
                sessions.close(copy)  # nobody knows its id
            raise
        if failure is not None:
            raise failure
        return reply

    async def truncate(self, request: pb.TruncateSessionRequest, call: Call) -> pb.TruncateSessionResponse:
        """Drops a session's tokens beyond a position. At the session's own position nothing changes."""
        await checked(request, call.n_request_bytes, self._state)
        sessions = self._state.sessions
        held = sessions.take(call.tenant, request.session_id)
        try:
            check_end(held, request.position)
            ended = begin_truncate(sessions, held, request.position) if request.position < held.position else None
        except BaseException:
            sessions.leave(held)
            raise
        if ended is None:
            sessions.leave(held)
        elif (failure := await ended) is not None:
            raise failure
        return pb.TruncateSessionResponse(position=request.position)

    async def release(self, request: pb.ReleaseSessionRequest, call: Call) -> pb.ReleaseSessionResponse:
        """Closes a session and frees its blocks, even while a call uses it."""
        await checked(request, call.n_request_bytes, self._state)
        return await self.release_checked(request, call)

    async def release_checked(self, request: pb.ReleaseSessionRequest, call: Call) -> pb.ReleaseSessionResponse:
        """The same for a checked request."""
        sessions = self._state.sessions
        held = sessions.find(call.tenant, request.session_id)
        if held is not None:
            sessions.close(held)
            await sessions.closed()
        return pb.ReleaseSessionResponse(released=held is not None)

    def _made_before(self, request: pb.ForkSessionRequest, digest: bytes, call: Call) -> pb.ForkSessionResponse | None:
        """The stored reply, if this call repeats the fork that made the copy; None if there is no such session."""
        sessions, name = self._state.sessions, request.new_session_id
        if not name:
            return None
        copy = sessions.find(call.tenant, name)
        if copy is None:
            if sessions.is_of_another_instance(name):
                raise sessions.why_missing(call.tenant, name)
            return None
        if copy.is_busy:
            raise Refusal("SESSION_BUSY", "another call is using the session")
        if (stored := copy.reply_to(digest)) is not None:
            return cast(pb.ForkSessionResponse, stored)
        raise Refusal(
            "POSITION_MISMATCH",
            f"new_session_id: a session of that name is open and holds {copy.position} tokens",
            {"expected": str(self._expected(request, copy, call)), "held": str(copy.position)},
        )

    def _expected(self, request: pb.ForkSessionRequest, copy: HeldSession, call: Call) -> int:
        """The position of the copy right after this fork, or after the fork that it repeats."""
        if request.HasField("position"):
            return request.position
        if copy.forked_at is not None:
            return copy.forked_at
        parent = self._state.sessions.find(call.tenant, request.session_id)
        if parent is None:
            raise self._state.sessions.why_missing(call.tenant, request.session_id)
        return parent.position
