"""Streams that break are joined to one, for threads, tasks, the command line and the benchmark; hostile servers."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

import imp_service
from imp_service.api.errors import DeviceError, Error, InternalError, ResourceExhausted, StateError
from imp_service.api.replies import GenerationResult
from imp_service.client import lasting_stream, patience
from imp_service.client.async_connection import AsyncConnection
from imp_service.client.bench.imp_server import measure_request
from imp_service.client.target import MOST_RECEIVED_BYTES, Target
from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse
from support.calls.waiting_client import WaitingClient
from support.run.patience import HANGS_AFTER
from support.servers.breaking_servers import STORY, UNAVAILABLE, BreakingServers, broken
from support.servers.loop_thread import loop_thread
from support.servers.scripted_server import RESUMABLE, Script, behind, refuse, resumable_story, scripted_server

PROMPT = "once upon a time"


@contextmanager
def clients(address: str, **options: Any) -> Iterator[list[Any]]:
    """Yields a client for threads and one for tasks, which waits."""
    with ExitStack() as ends:
        threaded = ends.enter_context(imp_service.connect(address, **options))
        waiting = WaitingClient(imp_service.connect_async(address, **options), loop_thread().run)
        ends.callback(waiting.close)
        yield [threaded, waiting]


def texts(results: Sequence[GenerationResult]) -> list[tuple[str, list[int], str]]:
    return [(each.text, each.token_ids, each.finish_reason) for each in results]


WHOLE = [("abc", [100, 101, 102], "max_tokens")] * 2


@pytest.mark.parametrize("cut", range(1, len(STORY)))
def test_rsm_4_a_stream_that_breaks_anywhere_is_joined(cut: int) -> None:
    for i in range(2):
        fleet = BreakingServers(cut)
        with scripted_server(Generate=fleet) as address, clients(address) as both:
            results = both[i].generate(PROMPT, num_sequences=2, seed=7).results()
        assert texts(results) == WHOLE
        assert [each.resumed for each in results] == [1, 1]
        first, second = fleet.asked
        assert second.HasField("resume") and not first.HasField("resume")


def test_rsm_4_a_stream_goes_on_as_often_as_it_brings_something() -> None:
    fleet = BreakingServers(2, 3, 0, 2, 1, 2)
    with scripted_server(Generate=fleet) as address, imp_service.connect(address) as client:
        result = client.generate(PROMPT, num_sequences=2).results()[0]
    assert (texts([result]), result.resumed, len(fleet.asked)) == (WHOLE[:1], 5, 7)


def test_rsm_4_the_debug_log_has_one_line_for_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, lasting_stream.__name__)
    with scripted_server(Generate=BreakingServers(2)) as address, imp_service.connect(address) as client:
        client.generate(PROMPT, num_sequences=2).results()
    assert [each.getMessage() for each in caplog.records] == [
        "a stream goes on behind 1 tokens; it broke: DRAINING: gone (UNAVAILABLE, try again)"
    ]


def test_rsm_4_several_prompts_and_conversations_go_on_too() -> None:
    messages = resumable_story()
    with scripted_server(Generate=BreakingServers(2, 2, 1, 2, messages=messages)) as address:
        with imp_service.connect(address) as client:
            several = client.generate([PROMPT] * 3).results()
            assert client.chat("hello").result().text == "abc"
        assert texts(several) == WHOLE[:1] * 3
        assert sum(each.resumed for each in several) >= 3


def test_rsm_4_a_server_that_goes_without_a_word_is_one_that_broke() -> None:
    messages = resumable_story()
    fleet = BreakingServers(2, 0, messages=messages, end=lambda context: context.abort(UNAVAILABLE, "Socket closed"))
    with scripted_server(Generate=fleet) as address, clients(address) as both:
        assert both[0].generate(PROMPT).result().resumed == 1
    assert len(fleet.asked) == 3


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("BUG", InternalError), ("RESUME_MISMATCH", StateError), ("UNAUTHENTICATED", StateError)],
)
def test_rsm_4_other_failures_are_the_caller_s(reason: str, kind: type[Error]) -> None:
    fleet = BreakingServers(2, end=lambda context: broken(context, reason, None))
    with scripted_server(Generate=fleet) as address, clients(address) as both:
        for client in both[:1]:
            with pytest.raises(kind) as caught:
                client.generate(PROMPT, num_sequences=2).results()
            assert caught.value.reason == reason
    assert len(fleet.asked) == 1


def test_rsm_4_resume_false_and_a_stream_without_an_origin_fail_as_before() -> None:
    plain = [GenerateResponse(started={"seed": 7}), *STORY[1:]]
    for options, messages in (({"resume": False}, STORY), ({}, plain)):
        fleet = BreakingServers(2, messages=messages)
        with scripted_server(Generate=fleet) as address, clients(address, **options) as both:
            for client in both:
                with pytest.raises(StateError) as caught:
                    client.generate(PROMPT, num_sequences=2).results()
                assert caught.value.reason == "DRAINING"
                fleet._cuts = iter((2,))
        assert len(fleet.asked) == 2


def test_rsm_8_only_clients_of_several_servers_say_that_they_go_on_elsewhere() -> None:
    fleet = BreakingServers()
    with scripted_server(Generate=fleet) as address:
        port = address.rpartition(":")[2]
        for target in (address, f"ipv4:{address}", f"dns:///localhost:{port}", f"ipv4:{address},127.0.0.1:1"):
            for options in ({}, {"resume": False}):
                with imp_service.connect(target, **options) as client:
                    client.generate(PROMPT, num_sequences=2).results()
    said = [each.get("imp-resumes") for each in fleet.metadata]
    assert said == [None, None, None, None, "1", None, "1", None]


def test_rsm_4_a_timeout_is_for_all_calls_together() -> None:
    def slow(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        rest = behind(endless, request.resume) if request.HasField("resume") else endless
        yield from rest[:2]
        left.append(context.time_remaining())
        threading.Event().wait(0.05)
        broken(context)

    endless = resumable_story(*["a"] * 500)
    left: list[float] = []
    began = time.monotonic()
    with scripted_server(Generate=slow) as address, imp_service.connect(address, timeout=1.0) as client:
        generation = client.generate(PROMPT)
        with pytest.raises(StateError) as caught:
            generation.result()
    assert caught.value.reason in ("DRAINING", "DEADLINE_EXCEEDED")
    assert time.monotonic() - began < 1 + HANGS_AFTER
    assert len(left) > 2 and left == sorted(left, reverse=True)


def waits(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
    """A server that takes a stream, breaks it, and then loads for a while: its client waits."""
    if request.HasField("resume"):
        broken(context, "LOADING", 20.0)
    yield from STORY[:3]
    broken(context)


def when_it_waits(client: Any, act: Callable[[], None]) -> threading.Thread:
    """Does something between two calls of a client, on a thread of its own."""

    def watch() -> None:
        while not client._connection._pauses:
            threading.Event().wait(0.001)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_rsm_4_cancelling_between_two_calls_ends_the_stream_with_what_came() -> None:
    with scripted_server(Generate=waits) as address, imp_service.connect(address) as client:
        generation = client.generate(PROMPT, num_sequences=2)
        canceller = when_it_waits(client, generation.cancel)
        began = time.monotonic()
        results = generation.results()
        canceller.join()
    assert [(each.text, each.finish_reason) for each in results] == [("a", "cancelled")] * 2
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("of", ["generation", "client"])
def test_rsm_4_closing_between_two_calls_ends_the_stream(of: str) -> None:
    with scripted_server(Generate=waits) as address, imp_service.connect(address) as client:
        generation = client.generate(PROMPT, num_sequences=2)
        closed = generation if of == "generation" else client
        closer = when_it_waits(client, closed.close)
        began = time.monotonic()
        with pytest.raises(StateError) as caught:
            generation.results()
        closer.join()
    assert caught.value.reason == "CANCELLED"
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("of", ["generation", "client", "task"])
def test_rsm_4_a_task_that_is_cancelled_between_two_calls_ends(of: str) -> None:
    async def use(address: str) -> str:
        async with imp_service.connect_async(address) as client:
            generation = client.generate(PROMPT, num_sequences=2)
            task = asyncio.create_task(generation.results())
            while not client._connection._pauses:
                await asyncio.sleep(0)
            if of == "task":
                task.cancel()
            else:
                await (generation.aclose() if of == "generation" else client.close())
            try:
                await asyncio.wait_for(task, 15)
            except asyncio.CancelledError:
                return "cancelled"
            except Error as error:
                return error.reason
        return "nothing"

    with scripted_server(Generate=waits) as address:
        assert loop_thread().run(use(address)) == ("cancelled" if of == "task" else "CANCELLED")


def test_rsm_4_the_benchmark_goes_on_and_says_so() -> None:
    async def measured(address: str) -> Any:
        connection = AsyncConnection(Target(address, resumes=True, attempts=1))
        try:
            return await measure_request(connection, GenerateRequest(text=PROMPT))
        finally:
            await connection.close()

    with scripted_server(Generate=BreakingServers(2, messages=resumable_story())) as address:
        result = loop_thread().run(measured(address))
    assert (result.failure, result.n_resumed, result.n_tokens) == ("", 1, 3)


# Hostile servers.


def ends(script: Script, kind: type[Error], reason: str, **options: Any) -> float:
    """Both clients end with this error; returns the seconds of the slower one."""
    longest = 0.0
    with scripted_server(Generate=script) as address, clients(address, **options) as both:
        for client in both:
            began = time.monotonic()
            with pytest.raises(kind) as caught:
                client.generate(PROMPT, num_sequences=2).results()
            assert caught.value.reason == reason, caught.value
            longest = max(longest, time.monotonic() - began)
    return longest


def started(n_told: int, **origin: Any) -> GenerateResponse:
    message = GenerateResponse(started={"resumed_tokens": n_told, "origin": RESUMABLE})
    for name, value in origin.items():
        setattr(message.started.origin, name, value)
    return message


def chunk(index: int, first_token: int, n: int = 1) -> GenerateResponse:
    return GenerateResponse(chunk={"index": index, "first_token": first_token, "token_ids": [5] * n})


HOSTILE: dict[str, list[GenerateResponse]] = {
    "begins anew": list(STORY),
    "another stream": [started(2, request="f" * 32)],
    "another seed": [started(2, seed=8)],
    "a gap": [started(2), chunk(0, 2)],
    "a token again": [started(2), chunk(0, 0)],
    "a third sequence": [started(2), chunk(2, 0)],
    "a sequence far away": [started(2), chunk(2**32 - 1, 0)],
    "after its end": [started(2), GenerateResponse(finished={"index": 0}), chunk(0, 1)],
    "no end": [started(2)],
}


@pytest.mark.parametrize("how", HOSTILE)
def test_k01_a_server_that_goes_on_otherwise_is_found_out(how: str) -> None:
    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        if request.HasField("resume"):
            yield from HOSTILE[how]
        else:
            yield from STORY[:3]
            broken(context)

    ends(script, InternalError, "STREAM_BROKEN")


def test_k01_a_stream_without_end_ends_at_the_tokens_that_were_asked_for() -> None:
    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        yield started(0)
        for i in range(10**9):
            yield chunk(0, i)

    with scripted_server(Generate=script) as address, clients(address) as both:
        for client in both:
            with pytest.raises(InternalError, match="21 tokens came, more than asked for"):
                client.generate(PROMPT, max_tokens=20).result()


@pytest.mark.parametrize("message", [chunk(0, 0, 0), GenerateResponse()])
def test_k01_messages_without_end_end_at_the_deadline(message: GenerateResponse) -> None:
    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        yield started(0)
        while context.is_active():
            yield message

    ends(script, StateError, "DEADLINE_EXCEEDED", timeout=0.3)


def test_k01_a_wait_of_thirty_years_is_an_error_at_once() -> None:
    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        if not request.HasField("resume"):
            yield from STORY[:3]
        broken(context, "LOADING", 1e9)

    assert ends(script, StateError, "LOADING") < 10


@pytest.mark.parametrize(
    ("end", "kind", "reason", "n_calls"),
    [
        (lambda context: broken(context, "DEVICE_FAULT", None), DeviceError, "DEVICE_FAULT", 4),
        (lambda context: context.abort(UNAVAILABLE, "Socket closed"), StateError, "UNAVAILABLE", 4),
        (lambda context: broken(context, "STALLED", None), InternalError, "STALLED", 2),
    ],
)
def test_k02_a_server_that_dies_at_once_ends_the_stream_after_three_calls_more(
    end: Any, kind: type[Error], reason: str, n_calls: int
) -> None:
    asked: list[GenerateRequest] = []

    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        asked.append(request)
        if not request.HasField("resume"):
            yield from STORY[:3]
        end(context)

    assert ends(script, kind, reason) < 10
    assert len(asked) == 2 * n_calls


def test_k02_a_server_that_refuses_for_ever_ends_the_stream_after_the_time_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 1.0)

    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        if not request.HasField("resume"):
            yield from STORY[:3]
        broken(context, "LOADING" if request.HasField("resume") else "DRAINING", 0.0)

    assert ends(script, StateError, "DRAINING") < 10


def test_k02_a_server_with_other_tokens_is_an_error() -> None:
    """The servers draw the last token again, and this one draws another."""

    def script(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        if not request.HasField("resume"):
            yield from STORY[:3]
            broken(context)
        info = ErrorInfo(reason="RESUME_MISMATCH", metadata={"differs": "sequences[0].token_ids[0]"})
        refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "another token", info)

    with scripted_server(Generate=script) as address, clients(address) as both:
        for client in both:
            with pytest.raises(StateError) as caught:
                client.generate(PROMPT, num_sequences=2).results()
            assert (caught.value.reason, caught.value.details["differs"]) == (
                "RESUME_MISMATCH",
                "sequences[0].token_ids[0]",
            )


def test_k01_a_message_of_two_gibibytes_is_refused_at_its_first_bytes() -> None:
    sent: list[int] = []
    with raw_server(lambda stream: answer_of(stream, 2**31 - 1), sent) as address:
        for client in (imp_service.connect(address), imp_service.connect(address, resume=False)):
            with client, pytest.raises(ResourceExhausted, match=f"2147483647 vs. {MOST_RECEIVED_BYTES}"):
                client.generate(PROMPT, timeout=HANGS_AFTER).result()
    assert sent and max(sent) < 2**20


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Returns a frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def answer_of(stream: int, n_bytes: int) -> bytes:
    """Returns the head of a reply and the first bytes of a message that is to have so many."""
    head = b"\x88\x00\x0ccontent-type\x10application/grpc"
    return frame(1, 4, stream, head) + frame(0, 0, stream, b"\0" + struct.pack(">I", n_bytes) + b"x" * 100)


@contextmanager
def raw_server(answer: Callable[[int], bytes], sent: list[int]) -> Iterator[str]:
    """Yields the address of a server of HTTP/2 that answers each request with these bytes."""

    def talk(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            stream.read(24)  # the preface
            connection.sendall(frame(4, 0, 0, b"") + frame(4, 1, 0, b""))
            while len(head := stream.read(9)) == 9:
                stream.read(int.from_bytes(head[:3], "big"))
                if head[3] == 1:
                    content = answer(struct.unpack(">I", head[5:])[0])
                    connection.sendall(content)
                    sent.append(len(content))

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=talk, args=(listener.accept()[0],)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for each in threads:
        each.join()
