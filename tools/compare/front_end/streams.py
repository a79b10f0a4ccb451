"""The gRPC client of the bench: concurrent Generate streams, read as bytes to keep the client cheap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from imp_service.pb import inference_pb2 as pb
from support.calls.wire import ask

GENERATE = "/imp.v1.InferenceService/Generate"


@dataclass(frozen=True)
class Read:
    """What all streams together have read."""

    seconds: float
    n_tokens: int
    n_messages: int


def request(n_tokens: int, first: int, max_chunk_tokens: int | None = None) -> pb.GenerateRequest:
    """Returns a request with one prompt token that only its length ends."""
    message = ask([first], n_tokens)
    message.stop.ignore_eos = True
    if max_chunk_tokens is not None:
        message.output.max_chunk_tokens = max_chunk_tokens
    return message


def read_streams(address: str, requests: Sequence[pb.GenerateRequest]) -> Read:
    """Runs all streams concurrently to their ends."""
    return asyncio.run(_read_streams(address, requests))


async def _read_streams(address: str, requests: Sequence[pb.GenerateRequest]) -> Read:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_stream(GENERATE, request_serializer=pb.GenerateRequest.SerializeToString)
        started = time.perf_counter()
        parts = await asyncio.gather(*(_read_one(call, message) for message in requests))
        seconds = time.perf_counter() - started
    return Read(seconds, sum(part[0] for part in parts), sum(part[1] for part in parts))


async def _read_one(call: grpc.aio.UnaryStreamMultiCallable, message: pb.GenerateRequest) -> tuple[int, int]:
    n_messages, last = 0, b""
    async for received in call(message):
        n_messages, last = n_messages + 1, received
    usage = pb.GenerateResponse.FromString(last).finished.usage
    assert usage.output_tokens == message.stop.max_tokens, usage
    return usage.output_tokens, n_messages
