"""Records one call: its counters, its access log line and its span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from imp_service.api.replies import SparsePrefillReport, Timings, Usage
from imp_service.telemetry.method import Method
from imp_service.telemetry.metrics import Metrics

# Codes of server faults: such a call has failed, even before anything was evaluated.
FAULTS = frozenset({"INTERNAL", "DATA_LOSS", "UNKNOWN"})


@dataclass(slots=True)
class CallFacts:
    """The data of a call for its access log line and its span. Contains no prompt and no tokens."""

    method: Method
    request_id: str
    tenant: str
    peer: str
    began: float
    n_prompt: int = 0
    n_cached: int = 0
    n_output: int = 0
    # Outputs that the caller had before the call.
    n_resumed: int = 0
    # Texts or pairs whose vectors or scores the call returned.
    n_inputs: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    sparse: SparsePrefillReport | None = None
    first_token_seconds: float | None = None
    timings: Timings | None = None
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    code: str = ""
    reason: str = ""
    outcome: str = ""


Ending = Callable[[CallFacts], None]


@dataclass(slots=True)
class CallRecord:
    """Updated on the event loop while the call runs. ended() must be called exactly once."""

    facts: CallFacts
    metrics: Metrics
    clock: Callable[[], float]
    # Each is called at the end of the call.
    endings: Sequence[Ending] = ()
    _is_started: bool = False
    _is_ended: bool = False
    # The time of the last token of each stream.
    _last_token: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method = self.facts.method
        self.metrics.call_started(method)
        if method.is_request:
            self.metrics.started.inc()
            self.metrics.active.inc()

    def started(self, n_prompt: int, n_cached: int, sparse: SparsePrefillReport | None = None) -> None:
        """A prompt was evaluated; a stream of steps calls this for each prefill."""
        n_skipped = self._sparse(sparse)
        self._is_started = True
        self.facts.n_prompt += n_prompt
        self.facts.n_cached += n_cached
        self.metrics.prompt_computed.inc(n_prompt - n_cached - n_skipped)
        self.metrics.prompt_cached.inc(n_cached)

    def recomputed(self, n_tokens: int) -> None:
        """A resumed request evaluated so many tokens besides its prompt."""
        self.metrics.prompt_recomputed.inc(n_tokens)

    def resumed(self, n_told: int) -> None:
        """The request goes on behind so many outputs that its caller has."""
        self.facts.n_resumed = n_told
        self.metrics.resumed.inc()

    def sampled(self, n_tokens: int, at: float, stream: int = 0) -> None:
        """The engine produced `n_tokens` more tokens of a sequence at time `at`."""
        if n_tokens <= 0:
            return
        last = self._last_token.get(stream)
        self._last_token[stream] = at
        n_gaps = n_tokens
        if last is None:
            last, n_gaps = at, n_tokens - 1
            self._first_token(at - self.facts.began)
        if n_gaps:
            self.metrics.inter_token.observe((at - last) / n_gaps, n_gaps)
        self._count_outputs(n_tokens)

    def stepped(self, n_tokens: int, seconds: float) -> None:
        """A step of sessions took `seconds` and gave `n_tokens`, one to each."""
        self._is_started = True
        if n_tokens > 0:
            self.metrics.inter_token.observe(seconds, n_tokens)
            self._count_outputs(n_tokens)

    def prefilled(self, n_prompt: int, n_cached: int, n_tokens: int, seconds: float) -> None:
        """A session's prefill took `seconds` and gave `n_tokens`, 0 or 1."""
        self.started(n_prompt, n_cached)
        if n_tokens > 0:
            self._first_token(seconds, n_tokens)
            self._count_outputs(n_tokens)

    def session_resumed(self, n_prompt: int, n_cached: int) -> None:
        """A session went on here: what it held was evaluated again, and its pending token is no new one."""
        self._is_started = True
        self.facts.n_prompt += n_prompt
        self.facts.n_cached += n_cached
        self.recomputed(n_prompt - n_cached)
        self.metrics.prompt_cached.inc(n_cached)
        self.metrics.resumed.inc()

    def embedded(self, n_inputs: int, n_tokens: int, timings: Timings) -> None:
        """Every input of the call has its vector or its score. ended() follows."""
        self.facts.n_inputs, self.facts.timings = n_inputs, timings
        self.metrics.embedded_inputs.inc(n_inputs)
        self.metrics.embedded_tokens.inc(n_tokens)
        self.metrics.queue_seconds.observe(timings.queue)

    def finished(self, reasons: Sequence[str], usage: Usage | None, timings: Timings | None) -> None:
        """The generation is complete, with the finish reason of each sequence. ended() follows."""
        self.facts.reasons = tuple(reasons)
        self.facts.timings = timings
        if usage is not None:
            self.facts.n_drafted, self.facts.n_accepted = usage.draft_tokens, usage.accepted_draft_tokens
            n_new = usage.output_tokens - self.facts.n_resumed
            if n_new > self.facts.n_output:
                # A stop token that the caller asked to see comes with the end, not as an output.
                self.sampled(n_new - self.facts.n_output, self.clock())
        for reason in reasons:
            self.metrics.finish.labels(reason).inc()
        if timings is not None:
            self.metrics.queue_seconds.observe(timings.queue)

    def ended(self, code: str, reason: str = "") -> None:
        """Ends the call with the name of a gRPC code and a reason of the error table. A second call is a bug."""
        if self._is_ended:
            raise RuntimeError(f"{self.facts.request_id} ended twice")
        self._is_ended = True
        facts, metrics = self.facts, self.metrics
        facts.code, facts.reason, facts.seconds = code, reason, self.clock() - facts.began
        facts.outcome = self._outcome(code)
        metrics.call_ended(facts.method, code, facts.seconds)
        if code != "OK":
            metrics.errors.labels(code, reason).inc()
        if facts.method.is_request:
            metrics.active.dec()
            metrics.ended.labels(facts.outcome).inc()
            metrics.request_seconds.observe(facts.seconds)
        for ending in self.endings:
            ending(facts)

    def _outcome(self, code: str) -> str:
        """An error is a refusal before anything was evaluated, and a failure after that."""
        if code == "OK":
            return "finished"
        if code == "CANCELLED":
            return "cancelled"
        if code == "DEADLINE_EXCEEDED":
            return "timed_out"
        return "failed" if self._is_started or code in FAULTS else "refused"

    def _sparse(self, sparse: SparsePrefillReport | None) -> int:
        """Returns the number of the prompt's tokens that were not evaluated."""
        if sparse is None:
            return 0
        self.facts.sparse = sparse
        self.metrics.sparse_prefill.labels("sparse" if sparse.is_sparse else "dense", sparse.reason).inc()
        if not sparse.is_sparse:
            return 0
        n_skipped = sparse.scored_tokens - sparse.selected_tokens
        self.metrics.prompt_tokens.labels("sparse_skipped").inc(n_skipped)
        return n_skipped

    def _first_token(self, seconds: float, n_tokens: int = 1) -> None:
        if self.facts.first_token_seconds is None:
            self.facts.first_token_seconds = seconds
        self.metrics.first_token.observe(seconds, n_tokens)

    def _count_outputs(self, n_tokens: int) -> None:
        self.facts.n_output += n_tokens
        self.metrics.output_tokens.inc(n_tokens)
