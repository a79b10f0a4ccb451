"""Requests a greedy answer of a fixed length over the OpenAI API, with one event per token if the server can."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

from compare.servers.load import Ask
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
    """Opens a connection for each client and keeps it for the next request."""
    async with open_openai_api(f"http://{address}", {}, None) as api:

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            body = {"prompt": prompt, "max_tokens": n_tokens, **OPTIONS}
            return await api.measure("/completions", json.dumps(body).encode())

        yield ask
