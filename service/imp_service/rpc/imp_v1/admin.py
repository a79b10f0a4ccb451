"""AdminService: drains the server, ends and lists requests, empties the cache, records steps, reloads settings."""

from __future__ import annotations

import asyncio

from imp_service.config import ConfigError
from imp_service.core import DoneEvent
from imp_service.pb import admin_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.durations import seconds_of, timestamp
from imp_service.rpc.imp_v1.model import write_load
from imp_service.rpc.imp_v1.requests.check_request import checked_without_model
from imp_service.serving.engine_events import engine_answer
from imp_service.serving.profile import chrome_trace, record
from imp_service.serving.refusal import Refusal
from imp_service.serving.running_requests import RunningRequest
from imp_service.serving.server_state import ServerState
from imp_service.serving.session.sessions import SessionFacts
from imp_service.serving.workers import SMALL_BYTES

# How often Drain sends its progress.
PROGRESS_SECONDS = 1.0
# How long a profile records by default, and its largest share of the time until the caller's deadline: the rest is for
# sending it.
PROFILE_SECONDS, PROFILE_SHARE = 60.0, 0.8


class AdminServicer:
    """On the event loop's thread. Shows the requests and sessions of every tenant, but no text."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        # The engine records one profile at a time.
        self._profiling = asyncio.Lock()

    async def Drain(self, request: pb.DrainRequest, call: GrpcCall) -> None:  # noqa: N802
        checked_without_model(request, self._state)
        drain = self._state.drain
        drain.begin(seconds_of(request.timeout) if request.HasField("timeout") else None)
        # The drain goes on if the caller leaves.
        over = asyncio.create_task(drain.wait())
        try:
            while not over.done():
                await self._send_progress(call)
                await asyncio.wait((over,), timeout=PROGRESS_SECONDS)
            await self._send_progress(call)
        finally:
            over.cancel()

    async def Resume(self, request: pb.ResumeRequest, call: GrpcCall) -> pb.ResumeResponse:  # noqa: N802
        self._state.drain.resume()
        return pb.ResumeResponse()

    async def Abort(self, request: pb.AbortRequest, call: GrpcCall) -> pb.AbortResponse:  # noqa: N802
        checked_without_model(request, self._state)
        requests = self._state.requests
        ended = requests.abort_all() if request.all else requests.abort(frozenset(request.request_ids))
        return pb.AbortResponse(aborted_request_ids=ended)

    async def ListRequests(self, request: pb.ListRequestsRequest, call: GrpcCall) -> pb.ListRequestsResponse:  # noqa: N802
        running_first = sorted(self._state.requests, key=lambda each: not each.has_started)
        return pb.ListRequestsResponse(requests=map(write_request, running_first), time=timestamp(self._state.wall()))

    async def ListSessions(self, request: pb.ListSessionsRequest, call: GrpcCall) -> pb.ListSessionsResponse:  # noqa: N802
        now = self._state.wall()
        sessions = (write_session(each, now) for each in self._state.sessions.facts())
        return pb.ListSessionsResponse(sessions=sessions, time=timestamp(now))

    async def FlushCache(self, request: pb.FlushCacheRequest, call: GrpcCall) -> pb.FlushCacheResponse:  # noqa: N802
        client = self._state.model.client
        done = await engine_answer(client, client.engine.flush)
        assert isinstance(done, DoneEvent)  # narrows
        return pb.FlushCacheResponse(freed_blocks=done.freed_blocks)

    async def Profile(self, request: pb.ProfileRequest, call: GrpcCall) -> None:  # noqa: N802
        if not self._state.settings.features.profile:
            raise Refusal("FEATURE_DISABLED", "features.profile is switched off", {"feature": "features.profile"})
        checked_without_model(request, self._state)
        async with self._profiling:
            profile = await record(self._state.model.client, request.steps, profile_seconds(request, call))
        pieces = chrome_trace(profile)
        while piece := await self._state.workers.run(lambda: next(pieces, b""), SMALL_BYTES):
            await call.write(pb.ProfileResponse(data=piece))

    async def Reload(self, request: pb.ReloadRequest, call: GrpcCall) -> pb.ReloadResponse:  # noqa: N802
        try:
            outcome = await self._state.reload.run()
        except ConfigError as error:
            raise Refusal("CONFIG_INVALID", f"{error.message}; nothing has changed") from None
        return pb.ReloadResponse(
            changed_keys=outcome.changed, restart_keys=outcome.needs_restart, file_keys=outcome.files
        )

    async def _send_progress(self, call: GrpcCall) -> None:
        load = write_load(self._state.utilization.snapshot())
        await call.write(pb.DrainResponse(load=load, drained=self._state.drain.is_drained))


def profile_seconds(request: pb.ProfileRequest, call: GrpcCall) -> float:
    """The most seconds that a profile records."""
    limit = seconds_of(request.time_limit) if request.HasField("time_limit") else PROFILE_SECONDS
    remaining = call.time_remaining()
    return limit if remaining is None else min(limit, PROFILE_SHARE * remaining)


def write_request(request: RunningRequest) -> pb.RequestState:
    """A request as an operator sees it."""
    return pb.RequestState(
        request_id=request.request_id,
        peer=request.peer,
        admit_time=timestamp(request.admitted_at),
        running=request.has_started,
        prompt_tokens=request.n_prompt_tokens,
        output_tokens=request.n_output_tokens,
        unread_messages=request.n_unread_messages,
    )


def write_session(session: SessionFacts, now: float) -> pb.SessionState:
    """A session as an operator sees it. While a call uses it, it has no expire_time."""
    state = pb.SessionState(
        session_id=session.session_id,
        position=session.position,
        last_use_time=timestamp(now - session.idle_seconds),
    )
    if session.seconds_left is not None:
        state.expire_time.CopyFrom(timestamp(now + session.seconds_left))
    return state
