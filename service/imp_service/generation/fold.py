"""Computes replies from a run's events: text, stop strings, constraint masks. Uses no thread and no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from imp_service.api.errors import FieldsInvalid
from imp_service.api.options import OutputOptions, SamplingOptions
from imp_service.api.replies import (
    Chunk,
    DrafterReport,
    Finished,
    FinishReason,
    MediaSpan,
    Reply,
    SparsePrefillReport,
    SpeculationReport,
    Started,
    StopMatch,
    Timings,
    Usage,
)
from imp_service.api.resume import Origin
from imp_service.core import DraftedEvent, FinishedEvent, StartedEvent, TokenEvent
from imp_service.generation.held_scores import HeldScores
from imp_service.generation.output_stream import OutputStream
from imp_service.generation.resume import Seam, against_constraint, allows, behind_end
from imp_service.generation.step import NS, timings_of
from imp_service.generation.told_replies import ToldReplies

if TYPE_CHECKING:
    from imp_service.text import Ahead, ConstraintState


@dataclass(frozen=True, slots=True)
class EndAt:
    """To the engine: the stream ends with this output. Drop what was sampled after it."""

    stream: int
    output: int


@dataclass(frozen=True, slots=True)
class AllowNext:
    """To the engine: the tokens allowed as this output. None: the stream must end. `ahead` answers a DraftedEvent."""

    stream: int
    output: int
    allowed: bytes | None
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True)
class ComputeMask:
    """To the caller: run mask_after(), which feeds the tokens to the constraint and computes the mask of `output`.

    If the engine asks for guesses, `n_guesses` at most, it also checks the engine's `proposal`, or makes some.
    """

    stream: int
    output: int
    tokens: Sequence[int]
    proposal: Sequence[int] = ()
    n_guesses: int = 0


Command = EndAt | AllowNext | ComputeMask
# Makes the stream of a sequence by its number.
MakeStream = Callable[[int, "ConstraintState | None"], OutputStream]
# Reasons that count only if the text is not complete.
_LIMITS = ("max_tokens", "context_full")


class GenerationFold:
    """The state of one generation between events and replies. For one thread at a time."""

    def __init__(
        self,
        *,
        sampling: SamplingOptions,
        prompt_ids: list[int],
        media: Sequence[MediaSpan],
        include_match: bool,
        output: OutputOptions,
        make_stream: MakeStream,
        constraints: list[ConstraintState | None],
        origin: Origin | None = None,
        seams: Sequence[Seam] = (),
    ) -> None:
        """`origin`: for a request that goes on with this one. `seams`: of one that does."""
        self._sampling = sampling  # in force
        self.origin = origin
        # Of the sequences that have ended.
        self._ends: list[FinishedEvent] = []
        self._prompt_ids = prompt_ids
        self._media = media
        self._echo_prompt = output.prompt_token_ids
        self._include_match = include_match
        self._streams = [make_stream(i, state) for i, state in enumerate(constraints)]
        self._started: StartedEvent | None = None
        # No more events will come. Some replies may not be taken yet.
        self.is_ended = False
        # Tokens that the caller can take now, over all sequences.
        self.n_unread_tokens = 0
        self._n_undelivered_ends = 0
        self._is_start_delivered = False
        self._turn = 0  # the stream of the next reply
        self._n_resumed = sum(len(seam.ids) for seam in seams)
        self.is_resumed = bool(seams)
        # The streams that are not behind their seam, nor at their end if the caller has it.
        self._seams: dict[int, Seam] = {}
        self._told = ToldReplies()
        for seam in seams:
            self._begin_again(seam)
        # Commands for the engine, in order. Whoever sends them empties the list.
        self.commands: list[Command] = [
            self._allow(stream, 0) for stream in self._streams if stream.constraint is not None
        ]

    @property
    def is_done(self) -> bool:
        """Whether the caller has the end of every sequence."""
        return all(stream.is_delivered for stream in self._streams)

    def feed(self, event: StartedEvent | TokenEvent | DraftedEvent | FinishedEvent) -> bool:
        """Takes the next event of the run. Returns True for a token that the caller will get."""
        if type(event) is TokenEvent:
            stream = self._streams[event.stream]
            if stream.is_stopped:
                return False  # sampled before the engine knew of the end
            stream.add(event)
            is_new = not (self._seams and self._meet(stream, event))
            self.n_unread_tokens += is_new
            if stream.is_stopped:
                self.commands.append(EndAt(stream.index, event.output))
            elif stream.constraint is not None:
                stream.unaccepted.append(event.token)
                if event.awaits_mask:
                    self._need_mask(stream, event.output + 1)
            return is_new
        if type(event) is DraftedEvent:
            stream = self._streams[event.stream]
            if not stream.is_stopped:
                self._need_mask(stream, event.output, event.tokens, event.n_most)
        elif isinstance(event, FinishedEvent):
            self._streams[event.stream].finished = event
            self._n_undelivered_ends += 1
            self.is_ended = all(stream.finished is not None for stream in self._streams)
            if self._seams:
                self._end_at_seam(self._streams[event.stream], event)
        else:
            started = cast(StartedEvent, event)
            self._started = self._started or started
            if self.is_resumed:
                self._told.add_scores(started)
        return False

    @property
    def told(self) -> Sequence[Chunk | Finished]:
        """The replies that the caller of a resumed request has, once its start can be taken: sequence by sequence.

        The reason of an end is not that which the caller has.
        """
        return self._told.replies()

    def n_again(self, event: StartedEvent) -> int:
        """How many outputs that the caller has were evaluated with the prompt."""
        return event.n_tokens - len(self._prompt_ids) if self.is_resumed else 0

    @property
    def n_ends(self) -> int:
        """How many sequences have an end that the caller gets."""
        return len(self._streams) - self._told.n_ends

    def _begin_again(self, seam: Seam) -> None:
        """Takes the outputs before a seam. Raises FieldsInvalid for those that cannot be."""
        stream = self._streams[seam.sequence]
        if (n := stream.add_again(seam.again)) < len(seam.ids) and stream.is_stopped:
            raise FieldsInvalid([behind_end(seam, n)])
        if stream.constraint is not None:
            if (n := stream.constraint.accept_all(seam.again)) < len(seam.again):
                raise FieldsInvalid([against_constraint(seam, n)])
            if not seam.is_met and not allows(stream.constraint.mask(), seam.last):
                raise FieldsInvalid([against_constraint(seam, n)])
        self._told.tell_again(stream, seam)
        if not seam.is_met or seam.is_finished:
            self._seams[seam.sequence] = seam

    def _meet(self, stream: OutputStream, event: TokenEvent) -> bool:
        """Whether an output is one that the caller has. Raises RESUME_MISMATCH if it has another one there."""
        seam = self._seams.get(stream.index)
        if seam is None or seam.is_met:
            return False
        if event.token != seam.last:
            raise seam.mismatch()
        self._pass(stream, seam)
        return True

    def _end_at_seam(self, stream: OutputStream, event: FinishedEvent) -> None:
        """The run has ended: the caller has the token that ended it, or has the end, or it was ended from outside."""
        seam = self._seams.get(stream.index)
        if seam is None:
            return
        if not seam.is_met:
            if event.reason == "stop":
                if not self._include_match or event.stop_token != seam.last:
                    raise seam.mismatch()
                self._keep_stop_token(stream, event)
            else:
                stream.add_again([seam.last])
            self._pass(stream, seam)
        if seam.is_finished:
            self._told.add_end(self._end(stream, event))
            del self._seams[stream.index]

    def _pass(self, stream: OutputStream, seam: Seam) -> None:
        seam.is_met = True
        self._told.tell_again(stream, seam)
        if not seam.is_finished:
            del self._seams[stream.index]

    def will_finish(self, event: FinishedEvent) -> None:
        """Call it before the event is fed. Needs a mask if the end's reason depends on whether the text is complete."""
        stream = self._streams[event.stream]
        if stream.unaccepted and not stream.is_stopped and event.reason in _LIMITS:
            self._need_mask(stream, event.n_outputs)

    def _need_mask(self, stream: OutputStream, output: int, proposal: Sequence[int] = (), n_guesses: int = 0) -> None:
        tokens, stream.unaccepted = stream.unaccepted, []
        self.commands.append(ComputeMask(stream.index, output, tokens, proposal, n_guesses))

    def mask_after(self, command: ComputeMask) -> AllowNext:
        """Computes the mask of the next output, and guesses.

        It may take long. It may run on any thread, one call at a time for each stream. Feed the end of the stream only
        after it has returned.
        """
        stream = self._streams[command.stream]
        assert stream.constraint is not None  # narrows
        for token in command.tokens:
            stream.constraint.accept(token)
        answer = self._allow(stream, command.output)
        if not command.n_guesses:
            return answer
        return replace(answer, ahead=stream.constraint.ahead(command.proposal, command.n_guesses))

    @property
    def n_tokens(self) -> int:
        """The number of outputs that the caller has or can take, over all sequences."""
        return sum(stream.n_outputs for stream in self._streams)

    def n_unread_messages(self, max_tokens: int) -> int:
        """How many chunks of at most `max_tokens` the unread tokens make now."""
        return sum(-(-len(stream.token_ids) // max_tokens) for stream in self._streams)

    def is_reply_due(self, max_tokens: int) -> bool:
        """Whether a reply must not wait for more tokens: a start, a first token, a full chunk or an end is unread."""
        if not self._is_start_delivered:
            return self._may_start
        if self._n_undelivered_ends:
            return True
        return any(
            (n := len(stream.token_ids)) >= max_tokens or (n and not stream.n_delivered) for stream in self._streams
        )

    def next_reply(self, max_tokens: int | None = None) -> Reply | None:
        """The next reply, or None if there is nothing. One chunk has the new tokens of one sequence."""
        if not self._is_start_delivered:
            if not self._may_start:
                return None
            self._is_start_delivered = True
            return self._start_reply()
        if not (self.n_unread_tokens or self._n_undelivered_ends):
            return None
        for _ in self._streams:
            # Round robin, so that no stream waits until another has no tokens left.
            stream = self._streams[self._turn]
            self._turn = (self._turn + 1) % len(self._streams)
            if stream.is_delivered:
                continue
            if stream.finished is not None:
                self.n_unread_tokens += self._keep_stop_token(stream, stream.finished)
            if stream.token_ids:
                chunk = stream.take(max_tokens)
                self.n_unread_tokens -= len(chunk.token_ids)
                return chunk
            if stream.finished is not None:
                return self._end(stream, stream.finished)
        return None

    @property
    def _may_start(self) -> bool:
        return self.is_ended or (self._started is not None and not self._seams)

    def _allow(self, stream: OutputStream, output: int) -> AllowNext:
        assert stream.constraint is not None  # narrows
        stream.is_complete = stream.constraint.only_end_is_possible
        allowed = None if stream.is_complete else stream.constraint.mask()
        return AllowNext(stream.index, output, allowed)

    def _start_reply(self) -> Started:
        """Without a StartedEvent the request ended while it was queued."""
        # The scores of a resumed request are those of told outputs.
        core = None if self._started is None or self.is_resumed else self._started.scores
        scores = HeldScores(core, self._prompt_ids if self._echo_prompt else [])
        sparse = sparse_prefill_of(self._started)
        return Started(
            self._sampling,
            self._n_prompt,
            self._n_cached,
            scores,
            sparse,
            self._media,
            self.origin,
            self._n_resumed,
        )

    @property
    def _n_prompt(self) -> int:
        """On a session it is the pending token, which the engine evaluates first."""
        if self._started is None or self.is_resumed:
            return len(self._prompt_ids)
        return self._started.n_tokens

    @property
    def _n_cached(self) -> int:
        return 0 if self._started is None else min(self._started.n_cached_tokens, self._n_prompt)

    def _keep_stop_token(self, stream: OutputStream, event: FinishedEvent) -> int:
        """Keeps a stop token that the caller requested. Returns how many tokens that adds."""
        if stream.is_settled:
            return 0
        stream.is_settled = True
        if self._include_match and not stream.is_stopped and event.reason == "stop" and event.stop_token >= 0:
            stream.add_stop_token(event.stop_token, event.stop_logprob, event.stop_candidates)
            return 1
        return 0

    def _end(self, stream: OutputStream, event: FinishedEvent) -> Finished:
        # If a limit and an end of the text come with one token, the end is the reason.
        ended = stream.is_stopped or (stream.is_complete and event.reason in _LIMITS)
        reason: FinishReason = "stop" if ended else cast(FinishReason, event.reason)
        match = StopMatch(text=stream.match) if stream.match is not None else None
        if not stream.is_stopped and reason == "stop" and event.stop_token >= 0:
            token = event.stop_token
            match = StopMatch(eos_token_id=token) if event.eos else StopMatch(token_id=token)
        stream.is_delivered = True
        self._ends.append(event)
        self._n_undelivered_ends -= 1
        rest, (usage, timings, speculation) = stream.rest(is_cut=reason != "stop"), self._totals(event)
        return Finished(
            stream.index, reason, match, rest.text, usage, timings, rest.reasoning, rest.tool_calls, speculation
        )

    def _totals(self, last: FinishedEvent) -> tuple[Usage, Timings, SpeculationReport] | tuple[None, None, None]:
        if not self.is_done:
            return None, None, None
        usage = Usage(
            prompt_tokens=self._n_prompt,
            cached_prompt_tokens=self._n_cached,
            output_tokens=self.n_tokens,
            draft_tokens=sum(event.drafts.n_drafted for event in self._ends),
            accepted_draft_tokens=sum(event.drafts.n_accepted for event in self._ends),
            reasoning_tokens=sum(stream.n_reasoning_tokens for stream in self._streams),
            prompt_media_tokens=sum(span.tokens for span in self._media),
        )
        return usage, timings_of(last.timings), speculation_of(self._ends)


def sparse_prefill_of(started: StartedEvent | None) -> SparsePrefillReport | None:
    """The report on the prompt, if sparse prefill was asked for."""
    sparse = None if started is None else started.sparse
    if sparse is None:
        return None
    return SparsePrefillReport(
        sparse.is_sparse, sparse.reason, sparse.n_scored, sparse.n_selected, sparse.scoring_ns * NS
    )


def speculation_of(ends: Sequence[FinishedEvent]) -> SpeculationReport:
    """The report over all sequences of a request. If they differ, the reason is that of the last to end."""
    counts = [event.drafters for event in ends]
    drafters = [
        DrafterReport(
            name,
            drafted=sum(each[name].n_drafted for each in counts),
            accepted=sum(each[name].n_accepted for each in counts),
        )
        for name in ends[-1].drafters
    ]
    return SpeculationReport(drafters, sum(event.drafts.n_rounds for event in ends), ends[-1].drafts_off)
