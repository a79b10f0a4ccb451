"""The plan of a bench: numbers of streams, lengths of prompts and answers, repetitions."""

from collections.abc import Iterator
from dataclasses import dataclass

from .measured_server import ServerFacts


class PlanRefused(Exception):
    """The plan does not fit this server."""

    def __init__(self, message: str) -> None:
        self.reason = "FIELD_INVALID"
        self.message = message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class LadderPlan:
    """Each level runs that many concurrent streams. Each stream sends `requests` requests, one after the other."""

    levels: tuple[int, ...] = (1, 4, 16, 64)
    prompt_tokens: int = 128
    output_tokens: int = 64
    requests: int = 2
    reps: int = 3
    warm_up_tokens: int = 8

    def check(self, server: ServerFacts) -> None:
        n_tokens = self.prompt_tokens + self.output_tokens
        if server.max_context is not None and n_tokens > server.max_context:
            raise PlanRefused(
                f"prompts of {self.prompt_tokens} and answers of {self.output_tokens} tokens are {n_tokens}, "
                f"expected at most {server.max_context}: the context of {server.model}"
            )

    def order(self) -> Iterator[tuple[int, int]]:
        """Pairs (repetition, level), alternately up and down, so that a drift of speed affects all levels equally."""
        for rep in range(self.reps):
            yield from ((rep, level) for level in (self.levels if rep % 2 == 0 else reversed(self.levels)))
