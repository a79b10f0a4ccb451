"""Generate and GenerateUnary: the same messages, sent as they come or merged into one."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from imp_service.generation import Chunk, Finished, GenerationRequest, Started
from imp_service.generation.output_stream import unread_token_bytes
from imp_service.generation.replies import PART_TOKENS, Reply
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.replies.encoded import Encoded
from imp_service.rpc.replies.whole_generation import WholeGeneration
from imp_service.rpc.replies.write_replies import encode_started, write_reply
from imp_service.rpc.requests.check_request import checked, paths_under
from imp_service.rpc.requests.read_requests import read_chunking, read_generation, reading_bytes
from imp_service.rpc.requests.reply_size import check_generation_size, most_chunk_tokens
from imp_service.serving.generation_stream import GenerationStream, OutboxLimits
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import ServedModel
from imp_service.serving.workers import SMALL_BYTES
from imp_service.telemetry import CallRecord

# A unary reply is merged from chunks of this size.
UNARY_CHUNK_TOKENS = 64


class Generate:
    """Runs generations of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def stream(self, request: pb.GenerateRequest, call: GrpcCall) -> None:
        """Sends every reply as a message."""
        async with self._running(request, call) as generation:
            while (reply := await generation.next_reply()) is not None:
                content = await self._encoded(reply, request, call)
                n_tokens = len(reply.token_ids) if isinstance(reply, Chunk) else 0
                # While the caller does not read, only the bytes are kept: the objects take ten times as much memory.
                del reply
                await call.write(content)
                call.n_sent_tokens += n_tokens

    async def unary(self, request: pb.GenerateUnaryRequest, call: GrpcCall) -> pb.GenerateUnaryResponse:
        """All messages merged into one."""
        async with self._running(request.request, call, unary=request) as generation:
            whole = WholeGeneration(generation.n_sequences)
            while (reply := await generation.next_reply()) is not None:
                await self._add(reply, request.request, call, whole)
        return whole.response()

    async def _encoded(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall) -> Encoded:
        if not is_large(reply):
            return Encoded(self._message(reply, request, call).SerializeToString())
        if isinstance(reply, Started):
            started, name = reply, self._host.model.name
            return await self._host.workers.write(lambda: encode_started(started, call.request_id, name))
        return await self._host.workers.write(lambda: Encoded(self._message(reply, request, call).SerializeToString()))

    async def _add(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall, whole: WholeGeneration) -> None:
        if is_large(reply):
            await self._host.workers.write(lambda: whole.add(self._message(reply, request, call)))
        else:
            whole.add(self._message(reply, request, call))

    def _message(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall) -> pb.GenerateResponse:
        if isinstance(reply, Finished) and reply.reason == "cancelled":
            # The caller did not cancel it: its session was released.
            raise self._host.sessions.why_missing(call.tenant, request.session_id)
        return write_reply(reply, call.request_id, self._host.model.name)

    @asynccontextmanager
    async def _running(
        self, request: pb.GenerateRequest, call: GrpcCall, unary: pb.GenerateUnaryRequest | None = None
    ) -> AsyncIterator[GenerationStream]:
        """A generation from its admission to its end. Whatever it holds is released, however it ends."""
        host, began = self._host, self._host.clock()
        refuse_late(call)
        served = await checked(unary or request, call.n_request_bytes, host)
        call.request_id = request.request_id or call.request_id
        wanted = read_generation(request, host.settings, priority=call.priority, tenant=call.tenant)
        host.model.require_fitting(wanted.prompt)
        with ExitStack() as holds:
            plan = self._planner(request, wanted, call, holds)
            running = holds.enter_context(host.requests.admit(call.request_id, call.tenant, call.peer, call.end))
            queued = host.model.client.engine.stats().queued
            with (
                paths_under("" if unary is None else "request"),
                host.admission.admit(wanted.num_sequences, queued, call.time_remaining()),
            ):
                program = await self._compiled(wanted, call)
                planned = await host.workers.run(plan, planning_bytes(wanted))
                del program
                check_generation_size(wanted, planned.n_prompt_tokens, served, is_unary=unary is not None)
                refuse_late(call)
                # Submitted with an abort that came during planning, which then takes effect before the first step.
                with host.model.client.together():
                    generation = GenerationStream(
                        host.model.client,
                        planned,
                        outbox_limits(request, wanted, served, is_unary=unary is not None),
                        Watcher(host, call.record, wanted.num_sequences),
                        clock=host.clock,
                        begin_work=host.workers.begin,
                        time_limit=(wanted.stop.time_limit or math.inf) - (host.clock() - began),
                        interrupt=call.end,
                    )
                    running.run(generation, planned.n_prompt_tokens)
            async with generation:
                yield generation

    async def _compiled(self, wanted: GenerationRequest, call: GrpcCall) -> object:
        """The program of its constraint. Planning finds it as long as there is a reference to it."""
        text, constraint = self._host.model.text, wanted.constraint
        if constraint is None:
            return None
        return text.find(constraint) or await self._host.constraints.run(lambda: text.compile(constraint), call.tenant)

    def _planner(self, request: pb.GenerateRequest, wanted: GenerationRequest, call: GrpcCall, holds: ExitStack) -> Any:
        """A function that plans the generation. If it continues a session, the session is in use until `holds` ends."""
        model = self._host.model
        if request.WhichOneof("prompt") != "session_id":
            return lambda: model.plan(wanted)
        held = holds.enter_context(self._host.sessions.use(call.tenant, request.session_id))
        keeps = not request.HasField("sampling")
        return lambda: held.session.plan(wanted, keeps_sampler=keeps)


class Watcher:
    """Records the engine's events in the call's record and in the estimate of the queue's wait."""

    def __init__(self, host: Host, record: CallRecord, n_sequences: int) -> None:
        self._host = host
        self._record = record
        self._n_sequences = n_sequences
        # A bound method, since it is called for each token.
        self.sampled = record.sampled

    def started(self, n_prompt: int, n_cached: int) -> None:
        """The prompt is evaluated."""
        self._record.started(n_prompt, n_cached)
        self._host.admission.began(self._n_sequences, self._host.model.client.engine.stats().queued)

    def finished(self, replies: Sequence[Finished]) -> None:
        """Every sequence has ended. The last reply has the totals."""
        last = replies[-1]
        self._record.finished([reply.reason for reply in replies], last.usage, last.timings)


def is_large(reply: Reply) -> bool:
    """Whether writing a reply takes too long for the event loop."""
    if isinstance(reply, Started):
        return len(reply.held_scores) > PART_TOKENS
    return isinstance(reply, Chunk) and len(reply.candidates) > PART_TOKENS


def refuse_late(call: GrpcCall) -> None:
    """Raises DEADLINE_EXCEEDED if the caller's deadline has passed."""
    if call.is_late:
        raise Refusal("DEADLINE_EXCEEDED", "the deadline has passed")


def planning_bytes(wanted: GenerationRequest) -> int:
    """The cost of planning, in bytes of text. Some options take long even for a short prompt."""
    n_bytes = reading_bytes(wanted.prompt)
    takes_long = wanted.constraint is not None or wanted.sampling.has_breakers
    return max(SMALL_BYTES, n_bytes) if takes_long else n_bytes


def outbox_limits(
    request: pb.GenerateRequest, wanted: GenerationRequest, served: ServedModel, *, is_unary: bool
) -> OutboxLimits:
    """How output is merged and may wait. The server itself reads the output of a unary call, and is never slow."""
    settings, output = served.settings, wanted.output
    max_tokens, max_delay = read_chunking(request.output, settings)
    return OutboxLimits(
        max_tokens=UNARY_CHUNK_TOKENS if is_unary else most_chunk_tokens(wanted, max_tokens, served),
        max_delay=math.inf if is_unary else max_delay,
        max_bytes=math.inf if is_unary else settings.slow_client.bytes,
        timeout=math.inf if is_unary else settings.slow_client.timeout.total_seconds(),
        token_bytes=unread_token_bytes(output, seeks_stop=bool(wanted.stop.strings)),
    )
