"""Makes conversations with long, different prefixes, and measures how much of them the caches of servers hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from support.calls.http_calls import HttpClient

N_CLIENTS = 2
N_TOKENS = 16
WORDS = ("cat", "dog", "tree", "house", "river", "stone", "cloud", "bird", "apple", "garden", "moon", "king")


@dataclass(frozen=True)
class Prefixes:
    """Conversations that begin differently, in the order in which their turns arrive."""

    texts: Sequence[str]
    turns: Sequence[tuple[int, str]]

    @classmethod
    def make(cls, n: int, n_words: int, n_turns: int, seed: int) -> Prefixes:
        """Makes `n` prefixes of `n_words` words, each continued `n_turns` times in mixed order."""
        drawn = random.Random(seed)
        texts = [" ".join([f"Story {i}:", *drawn.choices(WORDS, k=n_words)]) for i in range(n)]
        turns = [(i, f" and the {drawn.choice(WORDS)} {turn}") for turn in range(n_turns) for i in range(n)]
        # The first turn of each comes in order; the others are mixed.
        rest = turns[n:]
        drawn.shuffle(rest)
        return cls(texts, [*turns[:n], *rest])

    def cached_share(self, client: HttpClient, model: str) -> float:
        """Returns the share of the prompt tokens after each first turn that came from a cache.

        The first turns arrive together, so that a gateway sees load and distributes them.
        """

        def ask(turn: tuple[int, str]) -> dict[str, Any]:
            text, n = self.texts[turn[0]] + turn[1], N_TOKENS
            fields = {"model": model, "prompt": text, "max_tokens": n, "temperature": 0, "ignore_eos": True}
            reply = client.post("/v1/completions", fields)
            assert reply.status == 200, reply.content
            return dict(reply.json["usage"])

        n_first = len(self.texts)
        with ThreadPoolExecutor(n_first) as pool:
            list(pool.map(ask, self.turns[:n_first]))
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            usages = list(pool.map(ask, self.turns[n_first:]))
        n_cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
        return n_cached / sum(usage["prompt_tokens"] for usage in usages)
