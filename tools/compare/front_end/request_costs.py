"""Measures a whole request over each transport: CPU time, requests per second, and time to the first token."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack

import grpc

from compare.front_end.engine_process import EngineProcess, served_engine
from compare.front_end.figure import CLIENT_CPU, SERVER_CPU, Figure, both
from compare.front_end.http_streams import CHAT, COMPLETIONS, connect, post, stream_request
from compare.front_end.streams import GENERATE, request
from compare.front_end.token_costs import spent_since
from imp_service.pb import inference_pb2 as pb
from support.machine.process_numbers import thread_seconds

UNARY = "/imp.v1.InferenceService/GenerateUnary"
CHAT_TEXT = "Hi"
# Sends a request. Returns the seconds to the first token or to the answer.
Ask = Callable[[], Awaitable[float]]


def unary_message(kind: str) -> pb.GenerateUnaryRequest:
    """Returns a request for one token."""
    message = request(1, 300)
    if kind == "chat":
        message.chat.messages.add(role="user", content=CHAT_TEXT)
    return pb.GenerateUnaryRequest(request=message)


def unary_body(kind: str) -> bytes:
    """Returns the same request over HTTP."""
    fields = {"max_tokens": 1, "temperature": 0, "ignore_eos": True}
    if kind == "chat":
        return post(CHAT, {"messages": [{"role": "user", "content": CHAT_TEXT}], **fields})
    return post(COMPLETIONS, {"prompt": [300], **fields})


async def over_grpc(address: str, n: int, kind: str, stack: AsyncExitStack) -> list[Ask]:
    """Returns a caller for each gRPC connection. `kind`: completion, chat or first token."""
    own = (("grpc.use_local_subchannel_pool", 1),)
    channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address, options=own)) for _ in range(n)]

    def unary(channel: grpc.aio.Channel) -> Ask:
        call = channel.unary_unary(UNARY, request_serializer=pb.GenerateUnaryRequest.SerializeToString)
        message = unary_message(kind)

        async def ask() -> float:
            started = time.perf_counter()
            await call(message)
            return time.perf_counter() - started

        return ask

    def first(channel: grpc.aio.Channel) -> Ask:
        call = channel.unary_stream(GENERATE, request_serializer=pb.GenerateRequest.SerializeToString)
        message = request(1, 300)

        async def ask() -> float:
            started, came = time.perf_counter(), 0.0
            async for received in call(message):
                if not came and pb.GenerateResponse.FromString(received).WhichOneof("event") != "started":
                    came = time.perf_counter()
            return came - started

        return ask

    return [(first if kind == "first token" else unary)(channel) for channel in channels]


async def over_http(address: str, n: int, kind: str, stack: AsyncExitStack) -> list[Ask]:
    """Returns a caller for each HTTP connection."""
    connections = await stack.enter_async_context(connect(address, n))
    body = post(COMPLETIONS, stream_request(1, 300)) if kind == "first token" else unary_body(kind)

    def asker(number: int) -> Ask:
        async def ask() -> float:
            started = time.perf_counter()
            if kind == "first token":
                came, _ = await connections[number].stream(body)
            else:
                await connections[number].call(body)
                came = time.perf_counter()
            return came - started

        return ask

    return [asker(number) for number in range(n)]


def run(server: EngineProcess, transport: str, kind: str, n: int, n_each: int) -> tuple[float, float, list[float]]:
    """Returns the server's CPU seconds per request, requests per second, and the seconds of each request."""
    return asyncio.run(_run(server, transport, kind, n, n_each))


async def _run(
    server: EngineProcess, transport: str, kind: str, n: int, n_each: int
) -> tuple[float, float, list[float]]:
    async with AsyncExitStack() as stack:
        made = over_grpc(server.grpc, n, kind, stack) if transport == "gRPC" else over_http(server.http, n, kind, stack)
        asks = await made
        await _ask_often(asks, 3)
        before, started = thread_seconds(server.pid), time.perf_counter()
        times = await _ask_often(asks, n_each)
        seconds = time.perf_counter() - started
        spent = sum(had for _, had in spent_since(server.pid, before).values())
    return spent / len(times), len(times) / seconds, times


async def _ask_often(asks: Sequence[Ask], n_each: int) -> list[float]:
    async def caller(ask: Ask) -> list[float]:
        return [await ask() for _ in range(n_each)]

    return [seconds for of_caller in await asyncio.gather(*map(caller, asks)) for seconds in of_caller]


def request_costs(n_requests: int, reps: int) -> Iterator[Figure]:
    """Measures a server on one core with a client on the other."""
    with served_engine("script", cpu=SERVER_CPU) as server:
        os.sched_setaffinity(0, {CLIENT_CPU})
        for kind in ("completion", "chat"):
            for n in (1, 16):
                runs = _in_turns(server, kind, n, max(1, n_requests // n), reps)
                at = f"{kind} of one token, {n} connection{'s' * (n > 1)}"
                cpu = [[1e6 * one[0] for one in runs[transport]] for transport in ("gRPC", "HTTP")]
                rate = [[one[1] for one in runs[transport]] for transport in ("gRPC", "HTTP")]
                yield from both(f"processor time, {at}", "µs", *cpu, target="at most 0.8")
                yield from both(f"requests a second, {at}", "1/s", *rate, target="at least 1")
        for n in (1, 16):
            runs = _in_turns(server, "first token", n, max(1, n_requests // n), reps)
            half = [[1e3 * _median(one[2]) for one in runs[transport]] for transport in ("gRPC", "HTTP")]
            yield from both(f"first token, {n} client{'s' * (n > 1)}", "ms", *half, target="at most 1.05")


def _in_turns(
    server: EngineProcess, kind: str, n: int, n_each: int, reps: int
) -> dict[str, list[tuple[float, float, list[float]]]]:
    runs: dict[str, list[tuple[float, float, list[float]]]] = {"gRPC": [], "HTTP": []}
    for _ in range(reps):
        for transport, found in runs.items():
            found.append(run(server, transport, kind, n, n_each))
    return runs


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]
