"""Request greedy answers of a fixed length from a server, as streams of one token each if the server can.

Nothing is taken from an earlier prompt: no two of them begin alike, so a prompt cache would only cost time.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import grpc

from compare.servers.load import Ask
from imp_service.client.bench.imp_server import measure_request
from imp_service.client.bench.measure import RequestResult
from imp_service.client.bench.openai_api import open_openai_api
from imp_service.client.bench.openai_stream import DONE
from imp_service.client.bench.server_sent_events import EventReader
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.wire import ask as request_of

GREEDY = {"temperature": 0.0, "ignore_eos": True, "cache_prompt": False, "stream": True}
OPENAI = {**GREEDY, "max_chunk_tokens": 1, "stream_options": {"include_usage": True}}


@contextlib.asynccontextmanager
async def grpc_client(address: str) -> AsyncIterator[Ask]:
    """Sends all requests to an imp.v1 server over one connection."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = InferenceServiceStub(channel)

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            request = request_of(prompt, n_tokens)
            request.stop.ignore_eos = True
            request.output.max_chunk_tokens = 1
            return await measure_request(stub, request, ())

        yield ask


@contextlib.asynccontextmanager
async def openai_client(address: str) -> AsyncIterator[Ask]:
    """Opens a connection for each client and keeps it for the next request."""
    async with open_openai_api(f"http://{address}", {}, None) as api:

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            body = {"prompt": prompt, "max_tokens": n_tokens, **OPENAI}
            return await api.measure("/completions", json.dumps(body).encode())

        yield ask


@contextlib.asynccontextmanager
async def llama_client(address: str) -> AsyncIterator[Ask]:
    """Opens a connection to llama-server for each request of its own API."""
    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            body = {"prompt": prompt, "n_predict": n_tokens, **GREEDY}
            result = RequestResult(time.perf_counter())
            async with session.post(f"http://{address}/completion", json=body) as answer:
                if answer.status == 200:
                    await read_events(answer, result)
                else:
                    result.failure = f"HTTP_{answer.status}"
            result.end()
            return result

        yield ask


async def read_events(answer: aiohttp.ClientResponse, result: RequestResult) -> None:
    """Notes when tokens arrive. The count of an event includes tokens whose character is still incomplete."""
    events = EventReader()
    async for content in answer.content.iter_any():
        for event in events.read(content):
            n_arrived = 0 if event == DONE else json.loads(event)["tokens_predicted"] - result.n_tokens
            if n_arrived:
                result.arrivals.append((time.perf_counter(), n_arrived))
