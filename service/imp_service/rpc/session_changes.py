"""ForkSession, TruncateSession and ReleaseSession."""

from __future__ import annotations

import asyncio
from typing import cast

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.requests.check_request import checked
from imp_service.rpc.requests.read_requests import request_digest
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal
from imp_service.serving.session.commands import begin_fork, begin_truncate, check_within
from imp_service.serving.session.held_session import HeldSession, StoredReply


class SessionChanges:
    """Of one host's sessions. A caller that leaves finds its change done or not begun."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def fork(self, request: pb.ForkSessionRequest, call: Call) -> pb.ForkSessionResponse:
        """A copy of a session; the same one again where the call is repeated before the copy is used."""
        await checked(request, call.n_request_bytes, self._host)
        digest = request_digest(request)
        made = self._made_before(request, digest, call)
        if made is not None:
            return made
        sessions = self._host.sessions
        parent = sessions.take(call.tenant, request.session_id)
        try:
            position = request.position if request.HasField("position") else parent.position
            check_within(parent, position)
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
            sessions.give_up(copy)
            raise
        try:
            failure = await ended
        except asyncio.CancelledError:
            if not request.new_session_id:
                sessions.close(copy)  # nobody knows its name
            raise
        if failure is not None:
            raise failure
        return reply

    async def truncate(self, request: pb.TruncateSessionRequest, call: Call) -> pb.TruncateSessionResponse:
        """Drops what a session holds beyond a position; all of it is no change."""
        await checked(request, call.n_request_bytes, self._host)
        sessions = self._host.sessions
        held = sessions.take(call.tenant, request.session_id)
        try:
            check_within(held, request.position)
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
        """Frees a session and what it holds, whatever is at work on it."""
        await checked(request, call.n_request_bytes, self._host)
        return await self.release_checked(request, call)

    async def release_checked(self, request: pb.ReleaseSessionRequest, call: Call) -> pb.ReleaseSessionResponse:
        """The same for a request that is checked."""
        sessions = self._host.sessions
        held = sessions.find(call.tenant, request.session_id)
        if held is not None:
            sessions.close(held)
            await sessions.closed()
        return pb.ReleaseSessionResponse(released=held is not None)

    def _made_before(self, request: pb.ForkSessionRequest, digest: bytes, call: Call) -> pb.ForkSessionResponse | None:
        """The reply of the fork that made the copy, where this one repeats it."""
        sessions, name = self._host.sessions, request.new_session_id
        if not name:
            return None
        copy = sessions.find(call.tenant, name)
        if copy is None:
            if sessions.is_of_another_instance(name):
                raise sessions.gone(call.tenant, name)
            return None
        if copy.is_busy:
            raise Refusal("SESSION_BUSY", "another call is at work on the session")
        if (stored := copy.reply_to(digest)) is not None:
            return cast(pb.ForkSessionResponse, stored)
        raise Refusal(
            "POSITION_MISMATCH",
            f"new_session_id: a session of that name is open and holds {copy.position} tokens",
            {"expected": str(self._expected(request, copy, call)), "held": str(copy.position)},
        )

    def _expected(self, request: pb.ForkSessionRequest, copy: HeldSession, call: Call) -> int:
        """Tokens that the copy would hold if this fork, or the one that it repeats, were the last call on it."""
        if request.HasField("position"):
            return request.position
        if copy.forked_at is not None:
            return copy.forked_at
        parent = self._host.sessions.find(call.tenant, request.session_id)
        if parent is None:
            raise self._host.sessions.gone(call.tenant, request.session_id)
        return parent.position
