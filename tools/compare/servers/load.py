"""What clients request. Each waits for its answer before its next request; no two prompts share a prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from compare.ceiling import Ceiling, LeastWork
from compare.tokens import any_tokens
from imp_service.client.bench.measure import LevelRun, RequestResult
from imp_service.client.bench.report import Percentiles

# Takes the prompt's tokens and the number of tokens of the answer.
Ask = Callable[[list[int], int], Awaitable[RequestResult]]


# Each server's own API, and the one that both have.
NATIVE, OPENAI = "native", "OpenAI"


@dataclass(frozen=True)
class Load:
    """A number of concurrent clients, and the requests that each sends one after the other."""

    clients: int
    prompt_tokens: int
    output_tokens: int
    requests: int
    api: str = NATIVE

    @property
    def label(self) -> str:
        """Returns "16 clients, 256 + 64 tokens", with the name of the API unless it is the native one."""
        over = "" if self.api == NATIVE else f", {self.api}"
        clients = f"{self.clients} client{'s' * (self.clients > 1)}"
        return f"{clients}, {self.prompt_tokens} + {self.output_tokens} tokens{over}"

    def work(self, ceiling: Ceiling) -> LeastWork:
        """Returns the least work of a server: each prompt runs alone, then all clients decode together.

        Each step of decoding reads the weights once, reads the cache of every client, and computes one row for each.
        It leaves out queueing, steps with fewer clients, and the server itself.
        """
        prompts = [ceiling.prefill(self.prompt_tokens)] * self.clients
        steps = ceiling.model.decode(self.clients, self.prompt_tokens, self.output_tokens)
        return ceiling.work(self.n_tokens, [*prompts, steps] * self.requests)

    @property
    def n_tokens(self) -> int:
        """Returns the tokens of all answers."""
        return self.clients * self.requests * self.output_tokens


async def run_load(load: Load, vocab_size: int, ask: Ask) -> LevelRun:
    """Runs a load. Raises RuntimeError if a request fails or its answer has another length."""

    async def client() -> list[RequestResult]:
        prompts = [any_tokens(load.prompt_tokens, vocab_size) for _ in range(load.requests)]  # before the clock starts
        await everyone_is_ready.wait()
        return [await ask(prompt, load.output_tokens) for prompt in prompts]

    everyone_is_ready = asyncio.Barrier(load.clients)
    answers = await asyncio.gather(*(client() for _ in range(load.clients)))
    results = [result for of_client in answers for result in of_client]
    for result in results:
        if result.failure or result.n_tokens != load.output_tokens:
            raise RuntimeError(f"{load.label}: {result.failure or f'{result.n_tokens} tokens'}")
    return LevelRun(load.clients, results)


def figures_of(results: LevelRun) -> dict[str, float]:
    """Returns the times that clients see, in seconds, and the longest wait for a token as a multiple of the usual."""
    first = Percentiles.of([result.first_token_seconds for result in results.results])
    between = Percentiles.of([seconds for result in results.results for seconds in result.inter_token_seconds()])
    return {
        "first_token_p50": first.p50,
        "first_token_p99": first.p99,
        "inter_token_p50": between.p50,
        "inter_token_p99": between.p99,
        "inter_token_p99_in_p50": between.p99 / between.p50,
    }
