"""A client leaves, closes its side or does not read: its sequences are freed or paused, wherever they are."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.calls.generations import counted
from support.calls.raw_http import head, send_on
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import scripted

LONG_TEXT = "Once upon a time there was a girl. " * 34
SMALL = 4096


def completion(prompt: Any, **fields: Any) -> bytes:
    body = json.dumps({"prompt": prompt, "temperature": 0, "ignore_eos": True, **fields}).encode()
    form = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head("POST /v1/completions HTTP/1.1", *form) + body


@dataclass
class Place:
    """A request that is held at one place of its life, and the function that releases it."""

    http: HttpServed
    prompt: Any
    wait: Callable[[], None]
    release: Callable[[], None] = lambda: None
    n_tokens: int = 16
    # Requests that hold it back. They end by themselves after `release`.
    others: list[socket.socket] = field(default_factory=list)


def wait_for(http: HttpServed, holds: Callable[[Any], bool], n: int = 1) -> Callable[[], None]:
    requests = http.served.state.requests
    return lambda: http.served.wait_until(lambda: len(requests) == n and any(map(holds, requests)), "there")


@contextmanager
def reading() -> Iterator[Place]:
    with serve_http(model=scripted()) as http:
        worker = threading.Event()
        loop = http.served.thread.loop
        loop.call_soon_threadsafe(
            lambda: loop.create_task(http.served.state.workers.run(lambda: worker.wait(HANGS_AFTER), 2000))
        )
        yield Place(http, LONG_TEXT, wait_for(http, lambda each: each.stream is None), worker.set)
        worker.set()


@contextmanager
def queued() -> Iterator[Place]:
    with gate() as held, serve_http("scheduler.max_running=1", model=held.model()) as http:
        first = http.socket()
        first.sendall(completion([HELD - 2], max_tokens=8))
        held.wait()
        waits = wait_for(http, lambda each: not each.has_started, 2)
        try:
            yield Place(http, [300], waits, lambda: held.open(ALL_STEPS), others=[first])
        finally:
            held.open(ALL_STEPS)


@contextmanager
def in_prefill() -> Iterator[Place]:
    with gate() as held, serve_http("scheduler.prefill_chunk=4", model=held.model()) as http:
        prompt = [300 + i for i in range(9)] + [HELD] + [400 + i for i in range(20)]
        try:
            yield Place(http, prompt, held.wait, lambda: held.open(ALL_STEPS))
        finally:
            held.open(ALL_STEPS)


@contextmanager
def decoding() -> Iterator[Place]:
    with gate() as held, serve_http(model=held.model()) as http:
        try:
            yield Place(http, [HELD - 5], held.wait, lambda: held.open(ALL_STEPS))
        finally:
            held.open(ALL_STEPS)


@contextmanager
def paused() -> Iterator[Place]:
    model = scripted(max_context=8000, n_blocks=520)
    with serve_http("slow_client.bytes=4KiB", model=model) as http:
        paused = wait_for(http, lambda each: each.stream is not None and each.stream.is_paused)
        yield Place(http, [300], paused, n_tokens=7000)


PLACES = {"reading": reading, "queued": queued, "prefill": in_prefill, "decoding": decoding, "paused": paused}


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


@pytest.mark.sweep
@pytest.mark.parametrize("leave", [close, reset, half_close])
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_htp_3_whoever_leaves_anywhere_is_freed(
    place: str, is_streamed: bool, leave: Callable[[socket.socket], None]
) -> None:
    if place == "paused" and not is_streamed:
        return  # a whole answer is never paused: the server itself reads it
    with PLACES[place]() as it:
        served = it.http.served
        connection = it.http.socket(receive_buffer=SMALL)
        connection.sendall(
            completion(it.prompt, stream=is_streamed, logprobs=20 if is_streamed else None, max_tokens=it.n_tokens)
        )
        it.wait()
        n_before = len(it.others)
        leave(connection)
        served.wait_until(lambda: len(served.state.requests) == n_before, "gone")
        it.release()
        for other in it.others:
            assert send_on(other, b"", 1).status == 200
            other.close()
        it.http.wait_for_rest()
        outcomes = {
            name: counted(served, "imp_requests_ended_total", outcome=name) for name in ("cancelled", "finished")
        }
        assert outcomes == {"cancelled": 1, "finished": n_before}
        connection.close()


@pytest.mark.long
def test_htp_3_leaving_at_random_moments_leaves_nothing(repeats: Callable[[int], int]) -> None:
    draw = random.Random(3)
    with serve_http(model=scripted(max_context=1700, n_blocks=500)) as http:

        def one(i: int) -> None:
            mine = random.Random(i)
            with http.socket() as connection:
                content = completion([300 + i % 500], max_tokens=200, stream=mine.random() < 0.7, n=1 + i % 2)
                connection.sendall(content[: mine.choice((len(content), len(content), mine.randrange(len(content))))])
                for _ in range(mine.randrange(4)):
                    if len(content) and mine.random() < 0.8:
                        connection.settimeout(0.02)
                        try:
                            connection.recv(300)
                        except TimeoutError:
                            break
                if mine.random() < 0.3:
                    reset(connection)

        with http.served.canary(), ThreadPoolExecutor(8) as pool:
            list(pool.map(one, [draw.randrange(10**6) for _ in range(repeats(1000))]))
        http.wait_for_rest()


@pytest.fixture(scope="module")
def slow() -> Iterator[HttpServed]:
    model = scripted(max_context=9000, n_blocks=1200)
    with serve_http("slow_client.bytes=8KiB", "slow_client.timeout=300s", "http.head_timeout=10s", model=model) as it:
        yield it


def stalled(http: HttpServed, **fields: Any) -> socket.socket:
    """Returns a connection whose client does not read, after its sequences are paused."""
    connection = http.socket(receive_buffer=SMALL)
    connection.sendall(completion([300], stream=True, logprobs=20, **fields))
    seen: list[int] = []

    def has_come_to_rest() -> bool:
        requests = list(http.served.state.requests)
        is_paused = bool(requests) and all(each.stream is not None and each.stream.is_paused for each in requests)
        seen.append(sum(each.n_output_tokens for each in requests) if is_paused else -1)
        return len(seen) > 30 and seen[-1] > 0 and len(set(seen[-30:])) == 1

    http.served.wait_until(has_come_to_rest, "paused")
    return connection


@pytest.mark.long
def test_htp_4_a_reader_that_stops_is_paused_then_ended(slow: HttpServed) -> None:
    with stalled(slow, max_tokens=8000) as connection:
        (request,) = list(slow.served.state.requests)
        assert request.n_output_tokens < 8000
        slow.served.jump(200)
        assert len(slow.served.state.requests) == 1
        slow.served.jump(101)
        slow.wait_for_rest()
        assert slow.served.metric("imp_errors_total", code="RESOURCE_EXHAUSTED", reason="SLOW_CLIENT") == 1
        # A client that now reads gets what was sent, and why it ended.
        found = b""
        while not found.endswith(b"0\r\n\r\n"):
            found += connection.recv(65536)
        events = [line for line in found.split(b"\n") if line.startswith(b"data: ")]
        assert json.loads(events[-1].removeprefix(b"data: "))["error"]["code"] == "slow_client"
        assert b"[DONE]" not in found


@pytest.mark.long
def test_htp_4_one_that_never_reads_loses_its_connection(slow: HttpServed) -> None:
    with stalled(slow, max_tokens=8000):
        slow.served.jump(301)
        slow.wait_for_rest()
        listener = slow.http._listeners[0]._web
        assert len(listener.connections) == 1
        slow.served.jump(11)
        slow.served.jump(11)
        slow.served.wait_until(lambda: len(listener.connections) == 0, "cut off")


def test_htp_4_a_slow_reader_loses_nothing(slow: HttpServed) -> None:
    with stalled(slow, max_tokens=1500, return_token_ids=True) as connection:
        slow.served.jump(200)
        found = b""
        while b"[DONE]" not in found[-200:]:
            found += connection.recv(65536)
    ids: list[int] = []
    for line in found.split(b"\n"):
        if line.startswith(b"data: {"):
            ids += [token for choice in json.loads(line[6:])["choices"] for token in choice["token_ids"]]
    n_tokens = slow.served.state.model.n_tokens
    assert ids == [(301 + i) % n_tokens for i in range(1500)]


@pytest.mark.long
def test_htp_4_readers_that_do_not_read_hold_little() -> None:
    model = scripted(max_context=9000, n_blocks=5000)
    with serve_http("slow_client.timeout=300s", model=model) as http:
        connections = [http.socket(receive_buffer=SMALL) for _ in range(6)]
        for connection in connections:
            connection.sendall(completion([300], stream=True, logprobs=20, max_tokens=8000))
        requests = http.served.state.requests

        def are_paused() -> bool:
            return len(requests) == 6 and all(each.stream is not None and each.stream.is_paused for each in requests)

        http.served.wait_until(are_paused, "all are paused")
        listener = http.http._listeners[0]._web

        def held() -> list[int]:
            return [each.transport.get_write_buffer_size() for each in listener.connections if each.transport]

        assert max(http.served.call(held)) <= 256 * 1024
        assert http.complete([500], max_tokens=20).status == 200
        for connection in connections:
            connection.close()
        http.wait_for_rest()
