"""Generate and GenerateUnary: the same messages, written as they come or folded into one."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from imp_service.generation import Chunk, Finished, GenerationRequest, Started
from imp_service.generation.output_stream import unread_token_bytes
from imp_service.generation.replies import PART_TOKENS, Reply
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.replies.encoded import Encoded
from imp_service.rpc.replies.whole_generation import WholeGeneration
from imp_service.rpc.replies.write_replies import encode_started, write_reply
from imp_service.rpc.requests.check_request import checked, paths_under
from imp_service.rpc.requests.read_requests import read_chunking, read_generation, reading_bytes
from imp_service.rpc.requests.reply_size import check_generation_size, most_chunk_tokens
from imp_service.serving.generation_stream import GenerationStream, OutboxLimits
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import Terms
from imp_service.serving.workers import SMALL_BYTES
from imp_service.telemetry import CallRecord

# A reply that is one message anyway is gathered from parts of this size.
GATHERED_TOKENS = 64


class Generate:
    """Runs generations of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def stream(self, request: pb.GenerateRequest, call: Call) -> None:
        """Writes every reply as a message."""
        async with self._running(request, call) as generation:
            while (reply := await generation.next_reply()) is not None:
                content = await self._encoded(reply, request, call)
                n_tokens = len(reply.token_ids) if isinstance(reply, Chunk) else 0
                # While the caller does not read, only what is sent is kept: its objects take ten times as much.
                del reply
                await call.write(content)
                call.n_sent_tokens += n_tokens

    async def unary(self, request: pb.GenerateUnaryRequest, call: Call) -> pb.GenerateUnaryResponse:
        """All messages folded into one."""
        async with self._running(request.request, call, unary=request) as generation:
            whole = WholeGeneration(generation.n_sequences)
            while (reply := await generation.next_reply()) is not None:
                await self._add(reply, request.request, call, whole)
        return whole.response()

    async def _encoded(self, reply: Reply, request: pb.GenerateRequest, call: Call) -> Encoded:
        if not is_large(reply):
            return Encoded(self._message(reply, request, call).SerializeToString())
        if isinstance(reply, Started):
            started, name = reply, self._host.model.name
            return await self._host.workers.write(lambda: encode_started(started, call.request_id, name))
        return await self._host.workers.write(lambda: Encoded(self._message(reply, request, call).SerializeToString()))

    async def _add(self, reply: Reply, request: pb.GenerateRequest, call: Call, whole: WholeGeneration) -> None:
        if is_large(reply):
            await self._host.workers.write(lambda: whole.add(self._message(reply, request, call)))
        else:
            whole.add(self._message(reply, request, call))

    def _message(self, reply: Reply, request: pb.GenerateRequest, call: Call) -> pb.GenerateResponse:
        if isinstance(reply, Finished) and reply.reason == "cancelled":
            # Its caller is here: it was the session that was released.
            raise self._host.sessions.gone(call.tenant, request.session_id)
        return write_reply(reply, call.request_id, self._host.model.name)

    @asynccontextmanager
    async def _running(
        self, request: pb.GenerateRequest, call: Call, unary: pb.GenerateUnaryRequest | None = None
    ) -> AsyncIterator[GenerationStream]:
        """A generation from its admission to its end; what it held is given back however it ends."""
        host, began = self._host, self._host.clock()
        refuse_late(call)
        terms = await checked(unary or request, call.n_request_bytes, host)
        call.request_id = request.request_id or call.request_id
        wanted = read_generation(request, host.settings, priority=call.priority, tenant=call.tenant)
        host.model.require_fitting(wanted.prompt)
        with ExitStack() as holds:
            plan = self._planner(request, wanted, call, holds)
            running = holds.enter_context(host.requests.admit(call.request_id, call.tenant, call.peer, call.end))
            queued = host.model.client.engine.stats().queued
            with (
                paths_under("" if unary is None else "request"),
                host.line.place(wanted.num_sequences, queued, call.time_remaining()),
            ):
                program = await self._compiled(wanted, call)
                planned = await host.workers.run(plan, planning_bytes(wanted))
                del program
                check_generation_size(wanted, planned.n_prompt_tokens, terms, is_unary=unary is not None)
                refuse_late(call)
                # Together, so that an abort while it was planned ends it before its first step.
                with host.model.client.together():
                    generation = GenerationStream(
                        host.model.client,
                        planned,
                        outbox_limits(request, wanted, terms, is_unary=unary is not None),
                        Watcher(host, call.record, wanted.num_sequences),
                        clock=host.clock,
                        begin_work=host.workers.begin,
                        time_limit=(wanted.stop.time_limit or math.inf) - (host.clock() - began),
                        give_up=call.end,
                    )
                    running.run(generation, planned.n_prompt_tokens)
            async with generation:
                yield generation

    async def _compiled(self, wanted: GenerationRequest, call: Call) -> object:
        """Its constraint's program, which planning finds for as long as this is held."""
        text, constraint = self._host.model.text, wanted.constraint
        if constraint is None:
            return None
        return text.find(constraint) or await self._host.constraints.run(lambda: text.compile(constraint), call.tenant)

    def _planner(self, request: pb.GenerateRequest, wanted: GenerationRequest, call: Call, holds: ExitStack) -> Any:
        """What plans it; a session that it goes on with is taken for as long as `holds` lasts."""
        model = self._host.model
        if request.WhichOneof("prompt") != "session_id":
            return lambda: model.plan(wanted)
        held = holds.enter_context(self._host.sessions.use(call.tenant, request.session_id))
        keeps = not request.HasField("sampling")
        return lambda: held.session.plan(wanted, keeps_sampler=keeps)


class Watcher:
    """Tells the call's record and the line of waiting requests what comes from the engine."""

    def __init__(self, host: Host, record: CallRecord, n_sequences: int) -> None:
        self._host = host
        self._record = record
        self._n_sequences = n_sequences
        # The hot path.
        self.sampled = record.sampled

    def started(self, n_prompt: int, n_cached: int) -> None:
        """Its prompt is evaluated."""
        self._record.started(n_prompt, n_cached)
        self._host.line.moved(self._n_sequences, self._host.model.client.engine.stats().queued)

    def finished(self, replies: Sequence[Finished]) -> None:
        """Every sequence's end, the last with the totals."""
        last = replies[-1]
        self._record.finished([reply.reason for reply in replies], last.usage, last.timings)


def is_large(reply: Reply) -> bool:
    """Writing it takes longer than a step of the event loop may."""
    if isinstance(reply, Started):
        return len(reply.held_scores) > PART_TOKENS
    return isinstance(reply, Chunk) and len(reply.candidates) > PART_TOKENS


def refuse_late(call: Call) -> None:
    """Raises DEADLINE_EXCEEDED where the caller has stopped waiting."""
    if call.is_late:
        raise Refusal("DEADLINE_EXCEEDED", "the deadline has passed")


def planning_bytes(wanted: GenerationRequest) -> int:
    """What its plan costs, in bytes of text: some options take long, however short the prompt."""
    n_bytes = reading_bytes(wanted.prompt)
    takes_long = wanted.constraint is not None or wanted.sampling.has_breakers
    return max(SMALL_BYTES, n_bytes) if takes_long else n_bytes


def outbox_limits(
    request: pb.GenerateRequest, wanted: GenerationRequest, terms: Terms, *, is_unary: bool
) -> OutboxLimits:
    """How its output waits. A whole reply waits for its end; the server itself reads its parts, and is never slow."""
    settings, output = terms.settings, wanted.output
    max_tokens, max_delay = read_chunking(request.output, settings)
    return OutboxLimits(
        max_tokens=GATHERED_TOKENS if is_unary else most_chunk_tokens(wanted, max_tokens, terms),
        max_delay=math.inf if is_unary else max_delay,
        max_bytes=math.inf if is_unary else settings.slow_client.bytes,
        timeout=math.inf if is_unary else settings.slow_client.timeout.total_seconds(),
        token_bytes=unread_token_bytes(output, seeks_stop=bool(wanted.stop.strings)),
    )
