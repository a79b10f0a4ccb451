"""One step of a session: a run of one output, and what its events say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from imp_service.api.options import SamplingOptions, StepOptions
from imp_service.api.replies import Timings
from imp_service.core import (
    Event,
    FailedEvent,
    FinishedEvent,
    RunLimits,
    RunReturns,
    RunTimings,
    StartedEvent,
    TokenEvent,
    make_error,
)

NS = 1e-9  # seconds


def step_limits(options: StepOptions, eos_tokens: Sequence[int]) -> RunLimits:
    """A run of one output, or of none. An end token is an output like any other."""
    return RunLimits(max_outputs=1 if options.sample else 0, eos_tokens=list(eos_tokens), ends_at_eos=False)


def step_returns(options: StepOptions) -> RunReturns:
    """The results of a step in addition to the token."""
    return RunReturns(
        logprobs=options.sample,
        n_candidates=options.top_logprobs,
        logits=options.logits,
        scores=options.scores,
        n_score_candidates=options.top_logprobs if options.scores else 0,
    )


def timings_of(times: RunTimings) -> Timings:
    """A run's times as replies have them."""
    parts = (times.queue_ns, times.prefill_ns, times.decode_ns, times.blocked_ns, times.encode_ns)
    return Timings(*(part * NS for part in parts))


def row_bytes(logits: NDArray[np.float32]) -> bytes:
    """A row of logits as replies have it."""
    return logits.astype("<f4").tobytes()


class StepFold:
    """The events of one step. If there is an `on_done`, the thread that dispatches the last event calls it."""

    def __init__(self, on_done: Callable[[], None] | None = None, sampling: SamplingOptions | None = None) -> None:
        """`sampling`: the sampler that is in force once the step is done; None: that of the session."""
        self._on_done = on_done
        self.sampling = sampling
        self.ticket = 0
        self.started: StartedEvent | None = None
        self.token: TokenEvent | None = None
        self.finished: FinishedEvent | None = None
        self.failed: FailedEvent | None = None

    @property
    def is_done(self) -> bool:
        """The step has ended, well or not."""
        return self.finished is not None or self.failed is not None

    def feed(self, event: Event) -> None:
        """Takes the next event."""
        if isinstance(event, StartedEvent):
            self.started = event
        elif isinstance(event, TokenEvent):
            self.token = event
        elif isinstance(event, FinishedEvent):
            self.finished = event
        elif isinstance(event, FailedEvent):
            self.failed = event
        if self.is_done and self._on_done is not None:
            # Dropped, as it refers to the reply, and the reply to this fold.
            on_done, self._on_done = self._on_done, None
            on_done()

    def result(self) -> tuple[StartedEvent, TokenEvent | None, FinishedEvent]:
        """The events of the step. Raises its failure."""
        if self.failed is not None:
            raise make_error(self.failed.reason, self.failed.message, self.failed.details)
        assert self.started is not None and self.finished is not None  # narrows
        return self.started, self.token, self.finished
