"""What a run up the ladder asks of a server: how many streams, how long prompts and answers, how often."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ...pb.inference_pb2 import GenerateRequest
from ...pb.model_pb2 import GetModelInfoResponse


class PlanRefused(Exception):
    """What is asked for does not fit this server."""

    def __init__(self, message: str) -> None:
        self.reason = "FIELD_INVALID"
        self.message = message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class LadderPlan:
    """Each level keeps so many streams busy; each of them asks `requests` times, one after the other."""

    levels: tuple[int, ...] = (1, 4, 16, 64)
    prompt_tokens: int = 128
    output_tokens: int = 64
    requests: int = 2
    reps: int = 3
    warm_up_tokens: int = 8

    def check(self, model: GetModelInfoResponse) -> None:
        n_tokens = self.prompt_tokens + self.output_tokens
        if n_tokens > model.max_context_tokens:
            raise PlanRefused(
                f"prompts of {self.prompt_tokens} and answers of {self.output_tokens} tokens are {n_tokens}, "
                f"expected at most {model.max_context_tokens}: the context of {model.model}"
            )

    def order(self) -> Iterator[tuple[int, int]]:
        """(repetition, level): up, down, up …, so that what drifts on the machine drifts for every level alike."""
        for rep in range(self.reps):
            yield from ((rep, level) for level in (self.levels if rep % 2 == 0 else reversed(self.levels)))

    def request(self, model: GetModelInfoResponse, *identity: int, output_tokens: int | None = None) -> GenerateRequest:
        """A request of its own for each `identity`: no prompt begins like another, so no cache shortens it."""
        draw = random.Random(",".join(map(str, identity)))
        special = (
            {*model.eos_token_ids, model.bos_token_id} if model.HasField("bos_token_id") else {*model.eos_token_ids}
        )
        ids = [_ordinary(draw, model.num_tokens or model.vocab_size, special) for _ in range(self.prompt_tokens)]
        request = GenerateRequest(token_ids={"ids": ids}, sampling={"temperature": 0.0}, stop={"ignore_eos": True})
        request.stop.max_tokens = self.output_tokens if output_tokens is None else output_tokens
        return request


def _ordinary(draw: random.Random, n_tokens: int, special: set[int]) -> int:
    while (token := draw.randrange(n_tokens)) in special:
        pass
    return token
