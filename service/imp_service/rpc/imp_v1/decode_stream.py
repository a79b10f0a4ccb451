"""DecodeStream: session requests over one stream, answered in order. Sessions that it opens end with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.imp_v1.decode_step import DecodeStep
from imp_service.rpc.imp_v1.prefill import Prefill
from imp_service.rpc.imp_v1.requests.check_request import checked_steps
from imp_service.rpc.imp_v1.session_changes import SessionChanges
from imp_service.rpc.statuses import step_error
from imp_service.serving.errors.failures import reported_failure
from imp_service.serving.errors.field_paths import paths_under
from imp_service.serving.lifecycle import Phase, draining
from imp_service.serving.server_state import ServerState
from imp_service.serving.session.held_session import HeldSession

# The most requests that are read and not answered. Flow control stops the client there.
MAX_UNANSWERED = 64

Answer = asyncio.Task[pb.DecodeStreamResponse]


class DecodeStream:
    """One stream. Its requests run concurrently, but those that name the same session run in their order."""

    def __init__(self, state: ServerState, call: GrpcCall) -> None:
        self._state = state
        self._prefill = Prefill(state)
        self._step = DecodeStep(state)
        self._changes = SessionChanges(state)
        self._call = call
        self._opened: list[HeldSession] = []
        self._places = asyncio.Semaphore(MAX_UNANSWERED)
        # In request order; None after the last.
        self._answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._in_work: set[Answer] = set()
        # Requests that are read and whose answer is not sent.
        self._n_unanswered = 0
        self._is_read_out = False
        # The latest request that names a session.
        self._latest: dict[str, Answer] = {}

    async def answer(self, requests: AsyncIterator[pb.DecodeStreamRequest]) -> None:
        """Answers every request. Releases the sessions that it opened, however the stream ends."""
        reader = asyncio.create_task(self._read(requests))
        stop_watching = self._state.lifecycle.watch(lambda _: self._end_where_idle())
        try:
            while (answer := await self._answers.get()) is not None:
                reply = await answer
                await self._call.write(reply)
                self._call.n_sent_tokens += _n_tokens_in(reply)
                self._n_unanswered -= 1
                self._end_where_idle()
                self._places.release()
            await reader
        finally:
            stop_watching()
            reader.cancel()
            for each in self._in_work:
                each.cancel()
            for held in self._opened:
                self._state.sessions.close(held)
        await self._state.sessions.closed()

    async def _read(self, requests: AsyncIterator[pb.DecodeStreamRequest]) -> None:
        try:
            await self._places.acquire()
            async for request in requests:
                self._answers.put_nowait(self._begin(request))
                await self._places.acquire()
        finally:
            self._is_read_out = True
            self._answers.put_nowait(None)

    def _end_where_idle(self) -> None:
        """Ends the stream during a drain if no request is unanswered: the client may never end it."""
        is_draining = self._state.lifecycle.phase is Phase.DRAINING
        if is_draining and self._n_unanswered == 0 and not self._is_read_out:
            self._call.end(draining())

    def _begin(self, request: pb.DecodeStreamRequest) -> Answer:
        self._n_unanswered += 1
        names = set(_names_in(request))
        before = {self._latest[name] for name in names if name in self._latest}
        answer = asyncio.create_task(self._response(request, self._call.n_request_bytes, before))
        self._in_work.add(answer)
        self._latest.update(dict.fromkeys(names, answer))
        answer.add_done_callback(lambda done: self._leave(done, names))
        return answer

    def _leave(self, answer: Answer, names: set[str]) -> None:
        self._in_work.discard(answer)
        for name in names:
            if self._latest.get(name) is answer:
                del self._latest[name]

    async def _response(
        self, request: pb.DecodeStreamRequest, n_bytes: int, before: set[Answer]
    ) -> pb.DecodeStreamResponse:
        if before:
            await asyncio.wait(before)
        try:
            return await self._answered(request, n_bytes)
        except Exception as error:  # also a bug: it must not end the stream and with it every session
            failure = reported_failure(error, self._call, self._state.telemetry.log)
            return pb.DecodeStreamResponse(error=step_error(failure))

    async def _answered(self, request: pb.DecodeStreamRequest, n_bytes: int) -> pb.DecodeStreamResponse:
        self._state.lifecycle.require_open()
        steps = await checked_steps(request, n_bytes, self._state)
        kind = request.WhichOneof("request")
        assert kind is not None  # narrows
        with paths_under(kind):
            if kind == "prefill":
                prefill = await self._prefill.answer_checked(request.prefill, steps[0], self._call, self._on_open)
                return pb.DecodeStreamResponse(prefill=prefill)
            if kind == "step":
                stepped = await self._step.answer_checked(request.step, steps, self._call)
                return pb.DecodeStreamResponse(step=stepped)
            return pb.DecodeStreamResponse(release=await self._changes.release_checked(request.release, self._call))

    def _on_open(self, held: HeldSession) -> None:
        self._opened = [each for each in self._opened if each.is_open]
        self._opened.append(held)


def _n_tokens_in(reply: pb.DecodeStreamResponse) -> int:
    """The number of tokens in a reply."""
    outputs = [reply.prefill.output, *(result.output for result in reply.step.results)]
    return sum(output.HasField("token_id") for output in outputs)


def _names_in(request: pb.DecodeStreamRequest) -> Iterator[str]:
    """The ids of a request's sessions. It waits for earlier requests with the same ids."""
    match request.WhichOneof("request"):
        case "prefill":
            if request.prefill.session_id:
                yield request.prefill.session_id
        case "step":
            yield from (step.session_id for step in request.step.steps)
        case "release":
            yield request.release.session_id
