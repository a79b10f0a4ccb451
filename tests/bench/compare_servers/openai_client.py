"""Asks any server of OpenAI's API for a greedy answer of a fixed length, a token an event where it can be had."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

from bench.compare_servers.load import Ask
from imp_service.client.bench.measure import RequestResult
from imp_service.client.bench.openai_api import open_openai_api

# Nothing is taken from an earlier prompt: none begins alike. llama-server sends every token by itself, imp where asked.
OPTIONS = {
    "temperature": 0.0,
    "ignore_eos": True,
    "cache_prompt": False,
    "max_chunk_tokens": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
}


@contextlib.asynccontextmanager
async def openai_client(address: str) -> AsyncIterator[Ask]:
    """A connection for each client, kept for its next request."""
    async with open_openai_api(f"http://{address}", {}, None) as api:

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            body = {"prompt": prompt, "max_tokens": n_tokens, **OPTIONS}
            return await api.measure("/completions", json.dumps(body).encode())

        yield ask
