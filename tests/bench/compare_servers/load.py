"""What clients request. Each waits for its answer before its next request; no two prompts share a prefix."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from imp_service.client.bench.measure import LevelRun, RequestResult

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

    def prompt(self, vocab_size: int) -> list[int]:
        """Draws random tokens. The control tokens at both ends of the vocabulary are left out."""
        return [random.randrange(vocab_size // 8, vocab_size * 7 // 8) for _ in range(self.prompt_tokens)]


@dataclass(frozen=True)
class Run:
    """One load on one server, and the CPU time of the clients."""

    results: LevelRun
    client_cpu_seconds: float


async def run_load(load: Load, vocab_size: int, ask: Ask) -> Run:
    """Runs a load. Raises RuntimeError if a request fails or its answer has another length."""

    async def client() -> list[RequestResult]:
        prompts = [load.prompt(vocab_size) for _ in range(load.requests)]  # before the clock starts
        await everyone_is_ready.wait()
        return [await ask(prompt, load.output_tokens) for prompt in prompts]

    everyone_is_ready = asyncio.Barrier(load.clients)
    began = time.process_time()
    answers = await asyncio.gather(*(client() for _ in range(load.clients)))
    spent = time.process_time() - began
    results = [result for of_client in answers for result in of_client]
    for result in results:
        if result.failure or result.n_tokens != load.output_tokens:
            raise RuntimeError(f"{load.label}: {result.failure or f'{result.n_tokens} tokens'}")
    return Run(LevelRun(load.clients, results), spent)
