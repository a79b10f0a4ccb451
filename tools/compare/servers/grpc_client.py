"""Requests a greedy answer of a fixed length from an imp.v1 server, with one message per token, as the peer sends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc

from compare.servers.load import Ask
from imp_service.client.bench.imp_server import measure_request
from imp_service.client.bench.measure import RequestResult
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.wire import ask as request_of


@contextlib.asynccontextmanager
async def grpc_client(address: str) -> AsyncIterator[Ask]:
    """Sends all requests over one connection."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = InferenceServiceStub(channel)

        async def ask(prompt: list[int], n_tokens: int) -> RequestResult:
            request = request_of(prompt, n_tokens)
            request.stop.ignore_eos = True
            request.output.max_chunk_tokens = 1
            return await measure_request(stub, request, ())

        yield ask
