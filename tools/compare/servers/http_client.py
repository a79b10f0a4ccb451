"""Requests a greedy answer of a fixed length from llama-server, as server-sent events over HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

from compare.servers.load import Ask
from imp_service.client.bench.measure import RequestResult

# No two prompts share a prefix, so a prompt cache would only cost time.
OPTIONS = {"temperature": 0.0, "ignore_eos": True, "stream": True, "cache_prompt": False}
MOST_LINE_BYTES = 1 << 20


@contextlib.asynccontextmanager
async def http_client(address: str) -> AsyncIterator[Ask]:
    """Opens a connection for each request."""
    host, _, port = address.rpartition(":")

    async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
        body = json.dumps({"prompt": prompt, "n_predict": n_tokens, **OPTIONS}).encode()
        result = RequestResult(time.perf_counter())
        reader, writer = await asyncio.open_connection(host, int(port), limit=MOST_LINE_BYTES)
        try:
            head = f"POST /completion HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write((head + kind).encode() + body)
            result.failure = await read_head(reader)
            if not result.failure:
                async for event in events(reader):
                    # An event carries one token's text. Its count includes tokens whose character is still incomplete.
                    n_arrived = json.loads(event)["tokens_predicted"] - result.n_tokens
                    if n_arrived:
                        result.arrivals.append((time.perf_counter(), n_arrived))
        finally:
            writer.close()
        result.ended_at = time.perf_counter()
        return result

    yield ask


async def read_head(reader: asyncio.StreamReader) -> str:
    """Reads the head of a reply. Raises RuntimeError for any status but 200."""
    status = (await reader.readline()).decode().strip()
    while (await reader.readline()).strip():
        pass
    return "" if " 200 " in f"{status} " else status


async def events(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields the data of each event of a chunked body."""
    held = b""
    while n_bytes := int(await reader.readline(), 16):
        held += (await reader.readexactly(n_bytes + 2))[:-2]
        *whole, held = held.split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: {"):
                yield event.removeprefix(b"data: ")
