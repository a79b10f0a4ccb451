"""A call that embeds texts or ranks documents, from its admission to its end, for every transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from imp_service.api.replies import Usage
from imp_service.api.vectors import Ranking, Vectors
from imp_service.core import make_error
from imp_service.generation import ModelRuntime
from imp_service.generation.embedding import CallPlan, Embedder
from imp_service.generation.vector_calls import naming_input
from imp_service.generation.vector_run import VectorRun
from imp_service.serving.calls import Call
from imp_service.serving.errors.field_paths import Rename, paths_renamed
from imp_service.serving.generation_runner import refuse_late
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.embedding_rules import VECTOR_BYTES
from imp_service.serving.server_state import ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedInputs:
    """A checked call, with the transport's additions."""

    # Tokenizes the inputs. May take long.
    plan: Callable[[Embedder], CallPlan]
    # The bytes of the texts that it tokenizes.
    n_bytes: int
    # The field of the inputs, such as `texts`.
    field: str
    # The caller's names of fields in errors.
    rename: Rename


def usage_of(results: Vectors | Ranking) -> Usage:
    """The tokens that a call used."""
    return Usage(results.prompt_tokens, results.cached_prompt_tokens, 0)


def bytes_of(vectors: Vectors) -> int:
    """The size of all vectors."""
    return VECTOR_BYTES * len(vectors) * vectors.width


class InputsStream:
    """The inputs of a call in the engine, for one task on the event loop's thread: `async with` it, and await them."""

    def __init__(
        self,
        model: ModelRuntime,
        plan: CallPlan,
        payer: str,
        on_started: Callable[[int, int], None],
        *,
        seconds: float,
        late: Refusal,
    ) -> None:
        """Submits the first inputs. Raises if the engine refuses them. After so many seconds the call fails: `late`."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        # Set before the engine begins, whose threads then need every core.
        self._limit = loop.call_later(seconds, _fail, self._done, late)
        # Nothing that it calls refers to this stream, so that a call leaves no cycle.
        self.inputs = VectorRun(
            model,
            plan,
            payer=payer,
            on_done=partial(_settle, self._done),
            on_started=on_started,
            loop=loop,
        )
        try:
            self.inputs.begin()
        except BaseException:
            self._limit.cancel()
            raise

    @property
    def has_started(self) -> bool:
        """An input is evaluated."""
        return self.inputs.has_started

    @property
    def is_open(self) -> bool:
        """The engine still has inputs, or will get some."""
        return not self.inputs.is_done

    @property
    def is_waiting(self) -> bool:
        """The call waits for the engine."""
        return self.is_open

    @property
    def n_output_tokens(self) -> int:
        """Every input that has returned counts as an output."""
        return self.inputs.n_done

    @property
    def n_unread_messages(self) -> int:
        """None: the caller gets one reply."""
        return 0

    def end(self, reason: str) -> None:
        """Ends every input now. The call fails with CANCELLED."""
        self.inputs.cancel(make_error("CANCELLED", f"the request was {reason}"))

    async def settled(self) -> VectorRun:
        """The inputs, once all of them have returned or one has failed."""
        await self._done
        return self.inputs

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Cancels what still runs."""
        self._limit.cancel()
        if self.is_open:
            self.inputs.cancel()


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _fail(done: asyncio.Future[None], error: Refusal) -> None:
    if not done.done():
        done.set_exception(error)


class InputsRunner:
    """Runs such calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def run(self, wanted: WantedInputs, call: Call) -> VectorRun:
        """The inputs of a call, all of which have returned. Its resources are released however it ends."""
        with paths_renamed(wanted.rename), naming_input(wanted.field, wanted.rename):
            plan, inputs = await self._run(wanted, call)
            if inputs.failure is not None:
                raise inputs.failure
        call.record.embedded(len(plan.inputs), plan.prompt_tokens, inputs.timings)
        return inputs

    async def _run(self, wanted: WantedInputs, call: Call) -> tuple[CallPlan, VectorRun]:
        state, began = self._state, self._state.clock()
        refuse_late(call)
        with state.requests.register(
            call.request_id, call.tenant, call.peer, call.end, shares_id=call.shares_id
        ) as running:
            with state.admission.admit(call.payer, 1, call.time_remaining()):
                plan = await state.workers.run(lambda: wanted.plan(state.model.embedder), wanted.n_bytes)
                refuse_late(call)
                # Submitted with an abort that came during planning, which then takes effect before the first step.
                # Nothing partial is returned, so a call that takes too long fails.
                most = state.settings.limits.request_time.total_seconds()
                late = Refusal("DEADLINE_EXCEEDED", f"the call took longer than limits.request_time = {most:g} s")
                left, on_started = most - (state.clock() - began), partial(self._started, call)
                with state.model.client.together():
                    stream = InputsStream(state.model, plan, call.payer, on_started, seconds=left, late=late)
                    running.run(stream, plan.prompt_tokens)
            async with stream:
                return plan, await stream.settled()

    def _started(self, call: Call, n_tokens: int, n_cached: int) -> None:
        call.record.started(n_tokens, n_cached)
        self._state.admission.began(1, self._state.model.client.engine.stats().queued)
