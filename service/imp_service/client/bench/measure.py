"""One request from the client's view: when it was sent, when its messages arrived, how it ended."""

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestResult:
    """Times in seconds of one clock. `failure` is a reason of the error table; empty: it ended well."""

    asked_at: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (when, tokens) of each message with tokens
    ended_at: float = 0.0
    failure: str = ""
    prompt_tokens: int = 0  # as the server counts them; 0: not stated
    is_counted: bool = True  # by the server; otherwise each message with text counts as one token
    n_resumed: int = 0  # how often it broke and went on

    @property
    def first_token_seconds(self) -> float:
        return self.arrivals[0][0] - self.asked_at

    @property
    def n_tokens(self) -> int:
        return sum(n_tokens for _, n_tokens in self.arrivals)

    def inter_token_seconds(self) -> list[float]:
        """A time for each token after the first message. Tokens of one message share its waiting time."""
        times = []
        for (before, _), (after, n_tokens) in zip(self.arrivals, self.arrivals[1:], strict=False):
            times += [(after - before) / n_tokens] * n_tokens
        return times

    def end(self) -> None:
        """Ends the measurement now. An answer without a token is a failure."""
        if not self.failure and not self.arrivals:
            self.failure = "NO_TOKEN"
        self.ended_at = time.perf_counter()


@dataclass(frozen=True, slots=True)
class LevelRun:
    """One repetition of one level."""

    level: int
    results: list[RequestResult]

    @property
    def seconds(self) -> float:
        return max(r.ended_at for r in self.results) - min(r.asked_at for r in self.results)

    @property
    def tokens_per_s(self) -> float:
        """All streams together. Includes requests that failed later, since their tokens were generated."""
        return sum(r.n_tokens for r in self.results) / self.seconds

    @property
    def failures(self) -> Counter[str]:
        return Counter(r.failure for r in self.results if r.failure)

    @property
    def n_resumed(self) -> int:
        return sum(r.n_resumed for r in self.results)
