"""A generation in the engine: submits it, folds its events, ends it. Never waits: its readers do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from imp_service.api.options import OutputOptions
from imp_service.api.replies import Chunk, Reply
from imp_service.core import (
    ENGINE_STOPPED,
    DraftedEvent,
    EngineClient,
    Error,
    Event,
    FailedEvent,
    FinishedEvent,
    RunReturns,
    StartedEvent,
    TokenEvent,
    make_error,
)
from imp_service.generation.fold import AllowNext, ComputeMask, GenerationFold
from imp_service.generation.prompt_images import PromptImages

# If the engine has stopped, its events end each run with the reason. The error of a refused command adds nothing.
stopped_engine_says_why = suppress(*ENGINE_STOPPED)

# Does the work on any thread, then calls Done with the result on the run's thread.
Done = Callable[[AllowNext], bool]
Compute = Callable[[Callable[[], AllowNext], Done], None]


def compute_at_once(work: Callable[[], AllowNext], done: Done) -> None:
    """Computes a mask on the run's thread."""
    done(work())


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """A generation ready to be submitted, once: checked, tokenized, its constraint compiled."""

    fold: GenerationFold
    sequences: list[int]
    # Submits the run with this ticket. Raises the engine's error if it refuses the run at once.
    submit: Callable[[int], None]
    n_prompt_tokens: int
    time_limit: float | None = None  # seconds
    # The share of the prompt to evaluate, if only a part of it may be.
    sparse_share: float | None = None
    # The prompt lacks a tool that the conversation offers.
    hides_tools: bool = False
    # For a run on a session: called with the number of tokens that the session holds at the end.
    session_holds: Callable[[int], None] | None = None
    # Those of the prompt. They must be decoded before the run is submitted.
    images: PromptImages = field(default_factory=PromptImages)


def returns_of(output: OutputOptions, *, again_from: int | None = None) -> RunReturns:
    """The results of a run in addition to tokens.

    `again_from`: the caller has the tokens from here on, which are scored as outputs.
    """
    scores = output.prompt_logprobs if again_from is None else output.logprobs
    return RunReturns(
        logprobs=output.logprobs,
        n_candidates=output.top_logprobs,
        scores=scores,
        first_score=again_from or 0,
        n_score_candidates=output.top_logprobs if scores else 0,
    )


class GenerationRun:
    """For one thread at a time. Only keep() is called on whatever thread dispatches events.

    A reader that waits on that thread gives a `handler` of its own, which folds each event at once.
    However a run on a session ends, the session holds what was taken of it.
    """

    def __init__(
        self,
        client: EngineClient,
        plan: GenerationPlan,
        handler: Callable[[Event], None] | None = None,
        compute: Compute = compute_at_once,
    ) -> None:
        """Submits; raises what the engine refuses at once. Without a `handler` events go to keep().

        `compute` computes masks. The engine samples nothing of a stream before it has the mask.
        """
        self._client = client
        self._plan = plan
        self.fold = plan.fold
        self._on_session = plan.session_holds is not None
        self._events: deque[Event] = deque()
        self._compute = compute
        # Streams whose mask is being computed, and the ends of streams that came meanwhile.
        self._computing: set[int] = set()
        self._ends: dict[int, FinishedEvent] = {}
        # Tokens that the session held when each output was drawn.
        self._positions: list[int] = []
        # The session knows what it keeps, which may be less than the run sampled.
        self._is_cut = False
        self._n_taken = 0
        self.failure: Error | None = None
        self.is_open = True
        self._ticket = client.expect(handler or self.keep)
        try:
            plan.submit(self._ticket)
        except BaseException:
            self._forget()
            raise
        self._or_cancel(self._submit_commands)

    @property
    def has_events(self) -> bool:
        """Events wait to be absorbed."""
        return bool(self._events)

    def keep(self, event: Event) -> None:
        """Keeps an event until absorb() or has_settled()."""
        self._events.append(event)

    def take(self, event: Event) -> bool:
        """Folds an event at once. Returns True for a token that the caller will get."""
        fold = self.fold
        try:
            is_output = self._fold_event(event)
            if fold.commands or fold.is_ended or self.failure is not None:
                self._act()
        except BaseException:
            self.leave()
            raise
        return is_output

    def absorb(self) -> None:
        """Folds the events kept so far, and sends the engine the commands that follow from them."""
        self._or_cancel(self._absorb)

    def next_reply(self, max_tokens: int | None = None) -> Reply | None:
        """The next reply, or None if there is none now. After the last one `failure` is set if the run failed."""
        reply = self.fold.next_reply(max_tokens)
        if isinstance(reply, Chunk):
            self._n_taken += len(reply.token_ids)
        return reply

    def end(self, reason: str) -> None:
        """Ends every sequence at its next step. The remaining replies and `Finished` can still be read."""
        self._end_all(reason)

    def pause(self, is_paused: bool) -> None:
        """Pauses the run at its next step, or resumes it."""
        with stopped_engine_says_why:
            for sequence in self._plan.sequences:
                self._client.engine.pause(self._ticket, sequence, is_paused)

    def leave(self) -> None:
        """Cancels running sequences without waiting. A session keeps the outputs that were taken."""
        has_more = self.is_open or (self._on_session and self.fold.n_unread_tokens > 0)
        if has_more and not self._client.is_closed:
            self._end_all("cancelled", n_outputs=self._n_taken if self._on_session else None)
            self._tell_session(self._n_taken)
        self._forget()

    def begin_leaving(self) -> bool:
        """Leaves. Returns True if only the engine knows what the session holds: then wait until has_settled()."""
        if not self.is_open or not self._on_session or self._positions or self._client.is_closed:
            self.leave()
            return False
        self._end_all("cancelled", n_outputs=0)
        return True

    def has_settled(self) -> bool:
        """Whether the engine has ended a run of which nothing was taken. The session then knows what it holds."""
        while self._events:
            event = self._events.popleft()
            if isinstance(event, TokenEvent):
                self._positions.append(event.position)
            elif isinstance(event, FinishedEvent | FailedEvent):
                if self._positions:
                    self._tell_session(0)
                elif isinstance(event, FinishedEvent) and self._plan.session_holds is not None:
                    self._plan.session_holds(event.position)
                self._forget()
                return True
        return False

    def _absorb(self) -> None:
        while self._events:
            self._fold_event(self._events.popleft())
            self._submit_commands()
        self._act()

    def _act(self) -> None:
        """Sends the engine the commands of the folded events. Ends the run after its last event."""
        self._submit_commands()
        if self.fold.is_ended or self.failure is not None:
            self._forget()

    def _fold_event(self, event: Event) -> bool:
        fold = self.fold
        if type(event) is TokenEvent:
            if self._on_session:
                self._positions.append(event.position)
            return fold.feed(event)
        if isinstance(event, FailedEvent):
            # The caller first gets what was sampled before. The other sequences end too.
            self.failure = make_error(event.reason, event.message, event.details)
            self._end_all("cancelled")
            self._tell_session(len(self._positions))
            return False
        assert isinstance(event, StartedEvent | DraftedEvent | FinishedEvent)  # narrows
        if isinstance(event, FinishedEvent):
            fold.will_finish(event)
            self._submit_commands()
        if isinstance(event, FinishedEvent) and event.stream in self._computing:
            # Whether the text is complete decides the reason.
            self._ends[event.stream] = event
            return False
        if self._plan.session_holds is not None and isinstance(event, FinishedEvent) and not self._is_cut:
            self._plan.session_holds(event.position)
        return fold.feed(event)

    def _submit_commands(self) -> None:
        engine = self._client.engine
        commands = self.fold.commands
        if not commands:
            return
        pending = commands.copy()
        commands.clear()
        for command in pending:
            sequence = self._plan.sequences[command.stream]
            if isinstance(command, ComputeMask):
                self._computing.add(command.stream)
                self._compute(partial(self.fold.mask_after, command), self._on_mask)
            elif isinstance(command, AllowNext):
                self._allow(command)
            else:
                with stopped_engine_says_why:
                    engine.end(self._ticket, sequence, "stop", n_outputs=command.output + 1)
                self._tell_session(command.output + 1)

    def _on_mask(self, mask: AllowNext) -> bool:
        """Takes a computed mask. Returns True if the stream's end had come meanwhile."""
        self._computing.discard(mask.stream)
        if not self.is_open:
            return False
        self._allow(mask)
        end = self._ends.pop(mask.stream, None)
        if end is None:
            return False
        self._fold_event(end)
        self._act()
        return True

    def _allow(self, mask: AllowNext) -> None:
        allowed = mask.allowed
        if allowed is not None and not any(allowed):
            raise make_error("NO_CANDIDATE", f"constraint: no token can be output {mask.output}")
        sequence = self._plan.sequences[mask.stream]
        engine, ahead = self._client.engine, mask.ahead
        with stopped_engine_says_why:
            if ahead is None:
                engine.mask(self._ticket, sequence, mask.output, allowed or b"", end=allowed is None)
            else:
                masks = [] if allowed is None else [allowed, *ahead.masks]
                ends = allowed is None or ahead.ends
                engine.draft(self._ticket, sequence, mask.output, ahead.tokens, masks, forced=ahead.is_forced, end=ends)

    def _end_all(self, reason: str, n_outputs: int | None = None) -> None:
        with stopped_engine_says_why:
            for sequence in self._plan.sequences:
                self._client.engine.end(self._ticket, sequence, reason, n_outputs=n_outputs)

    def _tell_session(self, n_kept: int) -> None:
        if self._plan.session_holds is not None and self._positions:
            self._is_cut = True
            self._plan.session_holds(self._positions[max(n_kept - 1, 0)])

    def _or_cancel(self, act: Callable[[], None]) -> None:
        """Cancels the run if `act` raises, so that the engine does not wait for it."""
        try:
            act()
        except BaseException:
            self.leave()
            raise

    def _forget(self) -> None:
        self.is_open = False
        # The reader's method refers to the reader, and the reader to this run.
        self._compute = compute_at_once
        self._client.forget(self._ticket)
