"""A generation from its admission to its end, for every transport."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Chunk, Finished, Reply, SparsePrefillReport, Started
from imp_service.config.server_settings import SlowClientSettings
from imp_service.generation.decision import Group
from imp_service.generation.decision_rows import plan_rows
from imp_service.generation.held_scores import PART_TOKENS
from imp_service.generation.output_stream import unread_token_bytes
from imp_service.generation.run import GenerationPlan
from imp_service.serving.calls import Call
from imp_service.serving.errors.field_paths import Rename, paths_renamed
from imp_service.serving.generation_stream import GenerationStream, OutboxLimits
from imp_service.serving.images_hold import ImagesHold
from imp_service.serving.mismatches import mismatches_counted
from imp_service.serving.prompt_cost import planning_bytes
from imp_service.serving.refusal import Refusal
from imp_service.serving.server_state import ServerState

# The field of tools.
TOOLS = "chat.tools_json"
# A whole reply is merged from chunks of this size.
WHOLE_CHUNK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Delivery:
    """How output is divided into the messages of a stream."""

    # In one message.
    max_tokens: int
    # Seconds that a token may wait to share a message.
    max_delay: float
    # The server itself merges all output into one reply. It is never a slow reader.
    is_whole: bool = False


WHOLE = Delivery(WHOLE_CHUNK_TOKENS, math.inf, is_whole=True)


@dataclass(frozen=True, slots=True)
class ContinuedSession:
    """The session that a generation continues. It has no prompt then."""

    session_id: str
    # The request has no sampler of its own.
    keeps_sampler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested generation, with the transport's additions."""

    request: GenerationRequest
    delivery: Delivery
    # By the server's clock: when the time limit begins.
    began: float
    # Refuses a reply that could be too large to send, given the number of the prompt's tokens.
    check_size: Callable[[int], None]
    session: ContinuedSession | None = None
    # Added to the call's request id where one call has several generations.
    id_suffix: str = ""
    # It is a further part of a request that is registered under the same id.
    shares_id: bool = False
    # The caller's names of fields in errors; None: those of imp.v1's GenerateRequest.
    rename: Rename | None = None
    # More output than the context has room for is refused. Otherwise the output ends where the context does.
    must_fit: bool = True
    # Of a decision: the outputs of each sequence, whose rows are the replies.
    group: Group | None = None


class GenerationRunner:
    """Runs generations of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    @asynccontextmanager
    async def running(self, wanted: Wanted, call: Call) -> AsyncIterator[GenerationStream]:
        """Runs a checked generation. Its resources are released however it ends."""
        state, request = self._state, wanted.request
        state.model.embedder.require_generation()
        state.model.prompts.require_fitting(request.prompt)
        with ExitStack() as holds:
            plan = self._planner(wanted, call, holds)
            request_id = call.request_id + wanted.id_suffix
            shares_id = call.shares_id or wanted.shares_id
            if request.resume is not None:
                holds.enter_context(mismatches_counted(state.telemetry.metrics))
                shares_id = True
            running = holds.enter_context(
                state.requests.register(request_id, call.tenant, call.peer, call.end, shares_id=shares_id)
            )
            running.resumed_by = call.answer_name or ("" if call.shares_id else request_id)
            running.origin = None if request.resume is None else request.resume.origin
            with (
                paths_renamed(wanted.rename) if wanted.rename else nullcontext(),
                state.admission.admit(call.payer, request.num_sequences, call.time_remaining()),
                ImagesHold(state, request.prompt) as images,
            ):
                wanted = await self._with_tools(wanted)
                program = await self._compiled(wanted.request, call)
                planned = await state.workers.run(partial(plan, wanted.request), self._cost(wanted.request))
                del program
                running.origin = planned.fold.origin
                # What was sent of a stream that has no origin would be lost.
                call.goes_on_elsewhere &= wanted.delivery.is_whole or planned.fold.origin is not None
                if planned.hides_tools:
                    self._tell_hidden_tools(wanted, call)
                wanted.check_size(planned.n_prompt_tokens)
                await images.decode(planned.images)
                refuse_late(call)
                if request.resume is not None:
                    state.requests.take_over(running)
                # Submitted with an abort that came during planning, which then takes effect before the first step.
                with state.model.client.together():
                    generation = self._submitted(planned, wanted, call)
                    running.run(generation, planned.n_prompt_tokens)
            async with generation:
                yield generation

    def _tell_hidden_tools(self, wanted: Wanted, call: Call) -> None:
        call.ignore([wanted.rename(TOOLS) if wanted.rename else TOOLS])
        words = "the chat template does not show the model the tools of this conversation"
        self._state.telemetry.log.warning("tools_hidden", message=words, request_id=call.request_id)

    def _submitted(self, planned: GenerationPlan, wanted: Wanted, call: Call) -> GenerationStream:
        state, request = self._state, wanted.request
        return GenerationStream(
            state.model.client,
            planned,
            outbox_limits(request, wanted.delivery, state.settings.slow_client),
            Watcher(state, call, request.num_sequences, planned.sparse_share),
            clock=state.clock,
            begin_work=state.workers.begin,
            time_limit=(request.stop.time_limit or math.inf) - (state.clock() - wanted.began),
            interrupt=call.end,
        )

    async def _with_tools(self, wanted: Wanted) -> Wanted:
        """The request with its tool choice resolved, which may change its constraint."""
        request, model = wanted.request, self._state.model
        if not request.tool_choice and request.constraint is None:
            return wanted
        resolved = await self._state.workers.run(partial(model.with_tools, request), self._cost(request))
        return replace(wanted, request=resolved)

    def _cost(self, request: GenerationRequest) -> int:
        return planning_bytes(request, renders_quickly=self._state.model.text.renders_quickly)

    async def _compiled(self, request: GenerationRequest, call: Call) -> object:
        """The compiled constraint. The caller keeps it until planning has found it in the cache."""
        text, constraint = self._state.model.text, request.constraint
        if constraint is None:
            return None
        return text.find(constraint) or await self._state.constraints.run(lambda: text.compile(constraint), call.payer)

    def _planner(self, wanted: Wanted, call: Call, holds: ExitStack) -> Callable[[GenerationRequest], GenerationPlan]:
        """A function that plans the generation. If it continues a session, the session is in use until `holds` ends."""
        model, session = self._state.model, wanted.session
        if session is None:
            if (group := wanted.group) is not None:
                return lambda request: plan_rows(model, request, group, payer=call.payer)
            return partial(model.plan, payer=call.payer, must_fit=wanted.must_fit)
        held = holds.enter_context(self._state.sessions.use(call.tenant, session.session_id))
        return lambda request: held.session.plan(request, keeps_sampler=session.keeps_sampler)


class Watcher:
    """Records the engine's events in the call's record and in the estimate of the queue's wait."""

    def __init__(self, state: ServerState, call: Call, n_sequences: int, sparse_share: float | None) -> None:
        self._state = state
        self._call = call
        self._record = call.record
        self._n_sequences = n_sequences
        self._sparse_share = sparse_share
        # A bound method, since it is called for each token.
        self.sampled = call.record.sampled

    def started(self, n_prompt: int, n_cached: int, sparse: SparsePrefillReport | None) -> None:
        """The prompt is evaluated. No reply was sent yet, so its head can still say how."""
        self._record.started(n_prompt, n_cached, sparse)
        if sparse is not None and sparse.is_sparse and self._sparse_share is not None:
            self._call.approximate(sparse_approximation(self._sparse_share))
        self._state.admission.began(self._n_sequences, self._state.model.client.engine.stats().queued)

    def began_again(self, n_tokens: int, n_cached: int) -> None:
        """A sequence has its outputs again: with its prompt they were `n_tokens`, `n_cached` of them in the cache."""
        self._record.recomputed(n_tokens - n_cached)

    def resumed(self, n_told: int) -> None:
        """Every sequence goes on behind the outputs that the caller has."""
        self._record.resumed(n_told)
        self._state.telemetry.progress.resumed(self._call.answer_name or self._call.request_id, n_told)

    def finished(self, replies: Sequence[Finished]) -> None:
        """Every sequence has ended. The last reply has the totals."""
        last = replies[-1]
        self._record.finished([reply.reason for reply in replies], last.usage, last.timings)


def sparse_approximation(share: float) -> str:
    """How a reply says that this share of its prompt was to be evaluated."""
    digits = f"{share:.4f}"
    return f"sparse_prefill={digits[:4]}{digits[4:].rstrip('0')}"


def is_large(reply: Reply) -> bool:
    """Whether writing a reply takes too long for the event loop."""
    if isinstance(reply, Started):
        return max(len(reply.held_scores), reply.resumed_tokens) > PART_TOKENS
    return isinstance(reply, Chunk) and len(reply.candidates) > PART_TOKENS


def refuse_late(call: Call) -> None:
    """Raises DEADLINE_EXCEEDED if the caller's deadline has passed."""
    if call.is_late:
        raise Refusal("DEADLINE_EXCEEDED", "the deadline has passed")


def outbox_limits(request: GenerationRequest, delivery: Delivery, slow_client: SlowClientSettings) -> OutboxLimits:
    """How output is merged and may wait."""
    is_whole = delivery.is_whole
    seeks_stop = bool(request.stop.strings) or not request.parallel_tool_calls
    return OutboxLimits(
        max_tokens=delivery.max_tokens,
        max_delay=delivery.max_delay,
        max_bytes=math.inf if is_whole else slow_client.bytes,
        timeout=math.inf if is_whole else slow_client.timeout.total_seconds(),
        token_bytes=unread_token_bytes(request.output, seeks_stop=seeks_stop),
    )
