"""What an image in a prompt costs: the time of each part of it, and how long a running stream waits meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from imp_service import _core
from imp_service.core.bench.engine_runs import NS, EngineRuns
from imp_service.core.bench.report import ImageResult, Spread
from imp_service.core.engine_client import Event
from imp_service.core.errors import Error, make_error

Report = Callable[[str], None]
Media = Sequence[_core.MediaSpan]
Size = tuple[int, int]

TEXT_TOKENS = 64  # after the image
OUTPUTS_BEFORE = 8  # of a stream, before the prompt arrives


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that is not decoded yet."""

    tokens: Sequence[int]  # what is written for it, with all its cells
    n_cells: int
    decode: Callable[[], Media]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Makes images for a model."""

    cell_token: int
    make: Callable[[int, int], Picture]  # of this width and height; no two are equal
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of an image in an idle engine. The last ones are those from the file to the first token."""

    decode: float
    encode: float
    first_token: float


class ImageBench:
    """Measures one loaded model, whose engine has the cell token of `pictures`."""

    def __init__(self, runs: EngineRuns, pictures: Pictures, *, threads: int, reps: int, report: Report) -> None:
        self._runs = runs
        self._pictures = pictures
        self._threads = threads
        self._reps = reps
        self._report = report

    def require_room(self, size: Size, max_context: int) -> None:
        """Raises if an image of this width and height is none that the model reads, or if the prompt does not fit."""
        n_tokens = len(self._pictures.make(*size).tokens) + TEXT_TOKENS
        if n_tokens > max_context:
            named = f"image {size[0]}x{size[1]} and {TEXT_TOKENS} tokens"
            raise make_error("CONTEXT_TOO_LONG", f"{named}: {n_tokens} tokens, the context is {max_context}")

    def measure(self, size: Size) -> ImageResult:
        """The image alone, then beside a stream, in turn with a text of as many tokens."""
        label, parts, gaps, text_gaps = f"image {size[0]}x{size[1]}", list[Parts](), list[float](), list[float]()
        picture = self._pictures.make(*size)
        n_tokens = len(picture.tokens) + TEXT_TOKENS
        self._report(label)
        self._alone(size)  # a warm-up
        for rep in range(self._reps):
            self._report(f"{label}: {rep + 1} of {self._reps}")
            parts.append(self._alone(size))
            # Made before the stream runs: to write its file takes more time than to decode it.
            arriving = self._pictures.make(*size)
            gaps.append(self._longest_gap(partial(self._prompt, arriving)))
            text_gaps.append(self._longest_gap(lambda: (self._runs.tokens(n_tokens), [])))
        return ImageResult(
            self._threads,
            *size,
            n_tokens,
            picture.n_cells,
            Spread.of(part.decode for part in parts),
            Spread.of(part.encode for part in parts),
            Spread.of(part.first_token for part in parts),
            Spread.of(gaps),
            Spread.of(text_gaps),
        )

    def _prompt(self, picture: Picture) -> tuple[list[int], Media]:
        return [*picture.tokens, *self._runs.tokens(TEXT_TOKENS)], picture.decode()

    def _alone(self, size: Size) -> Parts:
        picture = self._pictures.make(*size)
        encoded_before = self._engine.stats().encode_ns
        began = time.perf_counter()
        tokens, media = self._prompt(picture)
        decoded = time.perf_counter()
        self._first_token(tokens, media)
        ended = time.perf_counter()
        return Parts(decoded - began, (self._engine.stats().encode_ns - encoded_before) * NS, ended - began)

    def _first_token(self, tokens: list[int], media: Media) -> None:
        sequence, limits = self._runs.client.next_sequence(), _core.RunLimits(ends_at_eos=False)
        self._runs.finish(
            [
                lambda ticket: self._engine.generate(
                    ticket, sequence, tokens, bypass_prefix=True, limits=limits, media=media
                )
            ]
        )

    def _longest_gap(self, prepare: Callable[[], tuple[list[int], Media]]) -> float:
        """The longest time between two outputs of a stream, from the arrival of a prompt to its first token.

        `prepare` runs meanwhile: the process that decodes images shares the processors with the engine.
        """
        with _running_stream(self._runs) as stream, ThreadPoolExecutor(1) as thread:
            stream.wait_for(OUTPUTS_BEFORE)
            first = len(stream.times) - 1
            prepared = thread.submit(prepare)
            self._runs.client.wait(prepared.done)
            self._first_token(*prepared.result())
            stream.wait_for(len(stream.times) + 1)
            return max(later - earlier for earlier, later in itertools.pairwise(stream.times[first:]))

    @property
    def _engine(self) -> _core.Engine:
        return self._runs.client.engine


class _Stream:
    """A generation that begins again at the end of its context. Knows when its outputs arrived."""

    def __init__(self, runs: EngineRuns) -> None:
        self.times: list[float] = []
        self._runs = runs
        self._is_ending = False
        self._is_over = False
        self._failure: Error | None = None
        self._ticket = runs.client.expect(self._take)
        self._begin()

    def wait_for(self, n_outputs: int) -> None:
        """Returns when there are so many. Raises if the stream has failed."""
        self._runs.client.wait(lambda: len(self.times) >= n_outputs or self._is_over)
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Returns when nothing of it runs any more."""
        self._is_ending = True
        if not self._runs.client.is_closed:
            self._runs.client.engine.end(self._ticket, self._sequence)
            self._runs.client.wait(lambda: self._is_over)
        self._runs.client.forget(self._ticket)

    def _begin(self) -> None:
        self._sequence = self._runs.client.next_sequence()
        limits = _core.RunLimits(max_outputs=-1, ends_at_eos=False)
        self._runs.client.engine.generate(
            self._ticket, self._sequence, self._runs.tokens(1), bypass_prefix=True, limits=limits
        )

    def _take(self, event: Event) -> None:
        if isinstance(event, _core.TokenEvent):
            self.times.append(time.perf_counter())
        elif isinstance(event, _core.FailedEvent):
            self._failure, self._is_over = make_error(event.reason, event.message, event.details), True
        elif isinstance(event, _core.FinishedEvent):
            if self._is_ending:
                self._is_over = True
            else:
                self._begin()


@contextmanager
def _running_stream(runs: EngineRuns) -> Iterator[_Stream]:
    stream = _Stream(runs)
    try:
        yield stream
    finally:
        stream.end()
