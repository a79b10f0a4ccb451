"""Folds a run's events into replies: tokens to text, stop strings, constraint masks. Knows no thread and no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from imp_service.core import FinishedEvent, StartedEvent, TokenEvent
from imp_service.generation.replies import (
    Candidate,
    Chunk,
    Finished,
    FinishReason,
    Reply,
    Started,
    StopMatch,
    Timings,
    TokenScores,
    Usage,
)
from imp_service.generation.step import candidates_of, scores_of, timings_of
from imp_service.text import TextStream

if TYPE_CHECKING:
    from imp_service.text import ConstraintState


@dataclass(frozen=True, slots=True)
class EndAt:
    """To the engine: the stream ends with this output; what was drawn beyond it never existed."""

    stream: int
    output: int


@dataclass(frozen=True, slots=True)
class AllowNext:
    """To the engine: the tokens that this output may be; none where only the end is possible."""

    stream: int
    output: int
    allowed: bytes | None


Command = EndAt | AllowNext


@dataclass(slots=True)
class Stream:
    """One sequence of a generation on its way to the caller."""

    index: int
    text: TextStream | None
    constraint: ConstraintState | None
    n_delivered: int = 0
    # Not yet taken by the caller: parallel lists, an entry per token.
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    candidates: list[list[Candidate]] = field(default_factory=list)
    fragments: list[str] = field(default_factory=list)
    match: str | None = None
    # Its constraint allows nothing but the end.
    is_complete: bool = False
    finished: FinishedEvent | None = None
    # The token or string that ended it was folded; what remains is to be told.
    is_settled: bool = False
    is_told: bool = False

    def add(self, token: int, logprob: float, candidates: list[Candidate], fragment: str) -> None:
        """Keeps a token until the caller takes it."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.candidates.append(candidates)
        self.fragments.append(fragment)


class GenerationFold:
    """One generation's state between its events and its replies. Not for use by two threads at once."""

    def __init__(
        self,
        *,
        seed: int,
        prompt_ids: list[int],
        echo_prompt: bool,
        include_match: bool,
        sends_text: bool,
        sends_logprobs: bool,
        make_text: Callable[[], TextStream | None],
        constraints: list[ConstraintState | None],
    ) -> None:
        self._seed = seed
        self._prompt_ids = prompt_ids
        self._echo_prompt = echo_prompt
        self._include_match = include_match
        self._sends_text = sends_text
        self._sends_logprobs = sends_logprobs
        self._streams = [Stream(i, make_text(), constraint) for i, constraint in enumerate(constraints)]
        self._started: StartedEvent | None = None
        # No further event will come; some replies may still be untold.
        self.is_ended = False
        # What the caller can take now, over all sequences.
        self.n_unread_tokens = 0
        self._is_start_told = False
        self._turn = 0  # the stream that is told next
        self._commands: list[Command] = [
            self._allow(stream, 0) for stream in self._streams if stream.constraint is not None
        ]

    @property
    def is_done(self) -> bool:
        """Every sequence's end was told."""
        return all(stream.is_told for stream in self._streams)

    def take_commands(self) -> list[Command]:
        """What the engine must be told now, in order."""
        commands, self._commands = self._commands, []
        return commands

    def feed(self, event: StartedEvent | TokenEvent | FinishedEvent) -> bool:
        """Takes the next event of the run; True where it is a token that the caller will get."""
        if isinstance(event, TokenEvent):
            return self._feed_token(self._streams[event.stream], event)
        if isinstance(event, StartedEvent):
            self._started = event
        else:
            self._streams[event.stream].finished = event
            self.is_ended = all(stream.finished is not None for stream in self._streams)
        return False

    @property
    def n_tokens(self) -> int:
        """Tokens that the caller has taken or can take, over all sequences."""
        return sum(stream.n_delivered for stream in self._streams) + self.n_unread_tokens

    def n_unread_messages(self, max_tokens: int) -> int:
        """Chunks of at most `max_tokens` in which the unread tokens would be told now."""
        return sum(-(-len(stream.token_ids) // max_tokens) for stream in self._streams)

    def must_be_told(self, max_tokens: int) -> bool:
        """Something should not wait for company: the start, a first token, a full chunk, an end."""
        if not self._is_start_told:
            return self._started is not None or self.is_ended
        for stream in self._streams:
            n = len(stream.token_ids)
            if (
                n >= max_tokens
                or (n and not stream.n_delivered)
                or (stream.finished is not None and not stream.is_told)
            ):
                return True
        return False

    def next_reply(self, max_tokens: int | None = None) -> Reply | None:
        """What the caller can be told now, None where there is nothing: new tokens of a sequence in one chunk."""
        if self._started is None and all(stream.finished is None for stream in self._streams):
            return None
        if not self._is_start_told:
            self._is_start_told = True
            return self._start_reply()
        for _ in self._streams:
            # Each in turn, so that none waits for another to run dry.
            stream = self._streams[self._turn]
            self._turn = (self._turn + 1) % len(self._streams)
            if stream.is_told:
                continue
            if stream.finished is not None:
                self._settle(stream, stream.finished)
            if stream.token_ids:
                return self._chunk(stream, max_tokens)
            if stream.finished is not None:
                return self._end(stream, stream.finished)
        return None

    def _feed_token(self, stream: Stream, event: TokenEvent) -> bool:
        if stream.match is not None:
            return False  # drawn before the engine heard of the stop string
        delta = None if stream.text is None else stream.text.feed(event.token)
        fragment = delta.text if delta is not None and self._sends_text else ""
        stream.add(event.token, event.logprob, candidates_of(event.candidates), fragment)
        self.n_unread_tokens += 1
        if delta is not None and delta.match is not None:
            stream.match = delta.match
            self._commands.append(EndAt(stream.index, event.output))
        elif stream.constraint is not None:
            stream.constraint.accept(event.token)
            self._commands.append(self._allow(stream, event.output + 1))
        return True

    def _allow(self, stream: Stream, output: int) -> AllowNext:
        assert stream.constraint is not None  # narrows
        stream.is_complete = stream.constraint.only_end_is_possible
        allowed = None if stream.is_complete else stream.constraint.mask()
        return AllowNext(stream.index, output, allowed)

    def _start_reply(self) -> Started:
        """Without a StartedEvent the request was ended while it was queued."""
        scores = TokenScores() if self._started is None else scores_of(self._started.scores)
        if self._echo_prompt and not scores.token_ids:
            scores = TokenScores(token_ids=self._prompt_ids)
        return Started(self._seed, len(self._prompt_ids), self._n_cached, scores)

    @property
    def _n_cached(self) -> int:
        return 0 if self._started is None else self._started.n_cached_tokens

    def _chunk(self, stream: Stream, max_tokens: int | None) -> Chunk:
        n = len(stream.token_ids) if max_tokens is None else min(max_tokens, len(stream.token_ids))
        candidates = stream.candidates[:n]
        chunk = Chunk(
            index=stream.index,
            first_token=stream.n_delivered,
            token_ids=stream.token_ids[:n],
            text="".join(stream.fragments[:n]),
            logprobs=stream.logprobs[:n] if self._sends_logprobs else [],
            candidates=candidates if any(candidates) else [],
        )
        stream.n_delivered += n
        self.n_unread_tokens -= n
        del stream.token_ids[:n], stream.logprobs[:n], stream.candidates[:n], stream.fragments[:n]
        return chunk

    def _settle(self, stream: Stream, event: FinishedEvent) -> None:
        """Keeps a stop token that is part of the output."""
        if stream.is_settled:
            return
        stream.is_settled = True
        if self._include_match and stream.match is None and event.reason == "stop" and event.stop_token >= 0:
            text = stream.text
            fragment = text.feed(event.stop_token).text if text is not None and self._sends_text else ""
            stream.add(event.stop_token, event.stop_logprob, candidates_of(event.stop_candidates), fragment)
            self.n_unread_tokens += 1

    def _end(self, stream: Stream, event: FinishedEvent) -> Finished:
        # Where a limit and an end of the text hold at one token, the end is the reason.
        ended = stream.match is not None or (stream.is_complete and event.reason in ("max_tokens", "context_full"))
        reason: FinishReason = "stop" if ended else cast(FinishReason, event.reason)
        match = StopMatch(text=stream.match) if stream.match is not None else None
        if match is None and reason == "stop" and event.stop_token >= 0:
            token = event.stop_token
            match = StopMatch(eos_token_id=token) if event.eos else StopMatch(token_id=token)
        stream.is_told = True
        held_back = stream.text.finish() if stream.text is not None and self._sends_text else ""
        return Finished(stream.index, reason, match, held_back, *self._totals(event))

    def _totals(self, last: FinishedEvent) -> tuple[Usage, Timings] | tuple[None, None]:
        if not self.is_done:
            return None, None
        usage = Usage(
            prompt_tokens=len(self._prompt_ids),
            cached_prompt_tokens=self._n_cached,
            output_tokens=sum(stream.n_delivered for stream in self._streams),
        )
        return usage, timings_of(last.timings)
