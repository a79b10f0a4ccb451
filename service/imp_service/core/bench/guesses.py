"""What guesses ahead cost and gain: the time of several rows of a sequence, and known answers with and without them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imp_service import _core
from imp_service.core.bench.engine_runs import NS, EngineRuns, Submit
from imp_service.core.bench.json_lines import Encode, json_lines, token_ids
from imp_service.core.bench.report import ReplayResult, RowsResult, Spread
from imp_service.core.errors import field_invalid

Report = Callable[[str], None]

ROW_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STEPS_OF_A_ROW_COUNT = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and its known answer, as tokens."""

    kind: str
    prompt: list[int]
    answer: list[int]


def read_samples(path: Path, encode: Encode | None, n_tokens: int) -> list[Sample]:
    """The samples of a file of JSON lines: {"kind": …, "prompt": …, "answer": …}, both texts or lists of token ids.

    The kind may be absent. Texts need a model with a tokenizer.
    """
    return [_sample(line, place, encode, n_tokens) for place, line in json_lines(path, "replay")]


def _sample(given: Any, place: str, encode: Encode | None, n_tokens: int) -> Sample:
    try:
        prompt, answer = (token_ids(given[name], encode) for name in ("prompt", "answer"))
    except (ValueError, KeyError, TypeError) as error:
        raise field_invalid("replay", f"{place}: {error}; expected an object with prompt and answer") from None
    if any(token >= n_tokens for token in (*prompt, *answer)):
        raise field_invalid("replay", f"{place}: expected token ids below {n_tokens}")
    if not prompt or len(answer) < 2:
        raise field_invalid("replay", f"{place}: expected a prompt, and an answer of at least two tokens")
    return Sample(str(given.get("kind", "answer")), prompt, answer)


@dataclass(frozen=True, slots=True)
class DecodedTwice:
    """Seconds of the same answers without and with guesses, and the ends of the runs with guesses."""

    without: float
    with_guesses: float
    ends: list[_core.FinishedEvent]

    @property
    def gain(self) -> float:
        """How many times as fast guesses make the answers."""
        return self.without / self.with_guesses

    @property
    def drafted(self) -> int:
        """The number of guesses."""
        return sum(end.drafts.n_drafted for end in self.ends)

    @property
    def accepted(self) -> int:
        """The number of right guesses."""
        return sum(end.drafts.n_accepted for end in self.ends)


class GuessBench:
    """Measures one loaded model."""

    def __init__(self, runs: EngineRuns, threads: int, most_guesses: int, reps: int, report: Report) -> None:
        """`most_guesses`: of a sequence in one step."""
        self._runs = runs
        self._threads = threads
        self._most_guesses = most_guesses
        self._reps = reps
        self._report = report

    def rows(self, depth: int, counts: Sequence[int] = ROW_COUNTS) -> list[RowsResult]:
        """The cost of each number of rows of one sequence. They take turns, so that all see the same machine."""
        session = self._opened(self._runs.tokens(depth))
        seconds: dict[int, list[float]] = defaultdict(list)
        for rep in range(self._reps + 1):
            self._report(f"rows of one sequence, depth {depth}: {rep} of {self._reps}")
            for n_rows in counts:
                took = statistics.median(self._evaluate(session, n_rows, depth) for _ in range(STEPS_OF_A_ROW_COUNT))
                if rep > 0:  # the first is a warm-up
                    seconds[n_rows].append(took)
        self._close([session])
        one = statistics.median(seconds[counts[0]])
        return [
            RowsResult(self._threads, n, depth, Spread.of(seconds[n]), statistics.median(seconds[n]) / one)
            for n in counts
        ]

    def replay(self, samples: Iterable[Sample], streams: int, n_tokens: int) -> list[ReplayResult]:
        """Decodes `n_tokens` of each answer, without and with guesses in turn."""
        by_kind: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            by_kind[sample.kind].append(sample)
        return [self._replay_kind(kind, each, streams, n_tokens) for kind, each in by_kind.items()]

    def _replay_kind(self, kind: str, samples: list[Sample], streams: int, n_tokens: int) -> ReplayResult:
        groups = [
            [samples[(first + i) % len(samples)] for i in range(streams)] for first in range(0, len(samples), streams)
        ]
        found = []
        for number, group in enumerate(groups, 1):
            self._report(f"{kind}, {streams} at once: {number} of {len(groups)}")
            found.append(self.decode_twice(group, n_tokens, guesses_first=number % 2 == 1))
        return ReplayResult(
            kind,
            self._threads,
            streams,
            sum(end.n_outputs - 1 for each in found for end in each.ends),
            Spread.of(each.without for each in found),
            Spread.of(each.with_guesses for each in found),
            Spread.of(each.gain for each in found),
            drafted=sum(each.drafted for each in found),
            accepted=sum(each.accepted for each in found),
        )

    def decode_twice(self, samples: list[Sample], n_tokens: int, *, guesses_first: bool) -> DecodedTwice:
        """Decodes `n_tokens` of these answers at once, without and with guesses."""
        sessions = [self._opened(sample.prompt[:-1]) for sample in samples]
        found = {
            guesses: self._decode(sessions, samples, n_tokens, self._most_guesses if guesses else 0)
            for guesses in (guesses_first, not guesses_first)
        }
        self._close(sessions)
        return DecodedTwice(found[False][0], *found[True])

    def _decode(
        self, sessions: list[int], samples: list[Sample], n_tokens: int, most: int
    ) -> tuple[float, list[_core.FinishedEvent]]:
        """Seconds from the first output of a sequence to its last, on average. Afterwards each holds its prompt again.

        Not the time until the last sequence ends: it would show what guesses cost the slowest one, and not what they
        gain for the others.
        """

        def submit(session: int, sample: Sample) -> Submit:
            answer = sample.answer[:n_tokens]
            limits = _core.RunLimits(max_outputs=len(answer), ends_at_eos=False)
            return lambda ticket: self._engine.run(
                ticket, session, sample.prompt[-1:], limits=limits, forced=answer, max_draft_tokens=most
            )

        ends = self._runs.finish([submit(session, sample) for session, sample in zip(sessions, samples, strict=True)])
        self._runs.answers(
            [self._truncate(session, len(sample.prompt) - 1) for session, sample in zip(sessions, samples, strict=True)]
        )
        return statistics.mean(end.timings.decode_ns for end in ends) * NS, ends

    def _evaluate(self, session: int, n_rows: int, depth: int) -> float:
        """Seconds of a step with so many rows of the session, each of which needs its logits."""
        limits, tokens = _core.RunLimits(max_outputs=0), self._runs.tokens(n_rows)
        returns = _core.RunReturns(scores=True, n_candidates=1)
        before = self._engine.stats().step_ns
        self._runs.finish([lambda ticket: self._engine.run(ticket, session, tokens, limits=limits, returns=returns)])
        took = self._engine.stats().step_ns - before
        self._runs.answers([self._truncate(session, depth)])
        return took * NS

    def _opened(self, tokens: list[int]) -> int:
        """A session that holds these tokens."""
        session = self._runs.client.next_sequence()
        self._engine.open(session, kind="session", bypass_prefix=True)
        if tokens:
            limits = _core.RunLimits(max_outputs=0)
            self._runs.finish([lambda ticket: self._engine.run(ticket, session, tokens, limits=limits)])
        return session

    def _close(self, sessions: list[int]) -> None:
        def submit(session: int) -> Submit:
            return lambda ticket: self._engine.close(ticket, session)

        self._runs.answers([submit(session) for session in sessions])

    def _truncate(self, session: int, n_tokens: int) -> Submit:
        return lambda ticket: self._engine.truncate(ticket, session, n_tokens)

    @property
    def _engine(self) -> _core.Engine:
        return self._runs.client.engine
