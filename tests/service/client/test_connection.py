"""Calls: failures with the server's explanation, retries before the first reply, cancelling, metadata."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo

from imp_service.client.connection import Connection
from imp_service.client.failure import CallFailure
from imp_service.client.stream_order import StreamBroken, StreamOrder
from imp_service.client.target import Target
from imp_service.pb.inference_pb2 import (
    GenerateRequest,
    GenerateResponse,
    GenerationChunk,
    GenerationFinished,
    GenerationStarted,
)
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from imp_service.pb.model_pb2 import GetLoadRequest, GetLoadResponse
from imp_service.pb.model_pb2_grpc import ModelServiceStub
from support.run.patience import HANGS_AFTER
from support.servers.scripted_server import Script, refuse, scripted_server, story


def generate(address: str, *, deadline: float | None = 30.0, **options: Any) -> list[GenerateResponse]:
    with Connection(Target(address, **options), deadline) as connection:
        stub = InferenceServiceStub(connection.channel)
        return list(connection.stream(stub.Generate, GenerateRequest(text="hello")))


def refusing_first(n_refusals: int, *, pushback_ms: int | None = None) -> tuple[Script, list[int]]:
    """Returns a script that refuses `n_refusals` calls with QUEUE_FULL and then answers, and a list of its calls."""
    calls: list[int] = []

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        calls.append(len(calls))
        if len(calls) <= n_refusals:
            retry = RetryInfo(retry_delay=Duration(nanos=10_000_000))
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            info = ErrorInfo(reason="QUEUE_FULL", domain="imp.v1")
            refuse(context, code, "256 requests wait", info, retry, pushback_ms=pushback_ms)
        yield from story("a")

    return script, calls


def test_refusals_before_anything_came_are_retried():
    script, calls = refusing_first(2, pushback_ms=1)
    with scripted_server(Generate=script) as address:
        assert generate(address) == story("a")
    assert calls == [0, 1, 2]


def test_one_attempt_is_one_attempt():
    script, calls = refusing_first(1, pushback_ms=1)
    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address, attempts=1)
    assert calls == [0]
    failure = caught.value
    assert (failure.code, failure.reason, failure.retry_after) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL", 0.01)
    assert failure.message == "256 requests wait (RESOURCE_EXHAUSTED, try again in 0.01 s)"


def test_a_pushback_that_says_never_is_obeyed():
    script, calls = refusing_first(1, pushback_ms=-1)
    with scripted_server(Generate=script) as address, pytest.raises(CallFailure):
        generate(address)
    assert calls == [0]


def test_what_failed_after_a_message_is_not_asked_for_again():
    calls = []

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        calls.append(request.text)
        yield from story("a")[:2]
        refuse(context, grpc.StatusCode.UNAVAILABLE, "stopping", ErrorInfo(reason="DRAINING", domain="imp.v1"))

    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address)
    assert (calls, caught.value.reason) == (["hello"], "DRAINING")


def test_every_violation_is_reported():
    bad = BadRequest()
    bad.field_violations.add(field="sampling.temperature", description="200, expected 0 to 100")
    bad.field_violations.add(field="stop.strings", description="17, expected at most 16")

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        info = ErrorInfo(reason="FIELD_INVALID", domain="imp.v1", metadata={"fields": "2"})
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "2 fields are invalid", info, bad)
        yield

    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address)
    failure = caught.value
    assert [(v.path, v.description) for v in failure.violations] == [
        ("sampling.temperature", "200, expected 0 to 100"),
        ("stop.strings", "17, expected at most 16"),
    ]
    assert failure.metadata == {"fields": "2"}
    assert str(failure) == (
        "FIELD_INVALID: sampling.temperature: 200, expected 0 to 100; stop.strings: 17, expected at most 16 "
        "(INVALID_ARGUMENT)"
    )


@pytest.mark.parametrize("packed", [b"", b"\xff\xff\xff", b"\x1a\x05hello"])
def test_a_status_without_details_is_its_code(packed: bytes):
    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.set_trailing_metadata((("grpc-status-details-bin", packed),))
        context.abort(grpc.StatusCode.NOT_FOUND, "nobody here")
        yield

    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address)
    assert str(caught.value) == "NOT_FOUND: nobody here"


def test_an_address_without_a_server_is_unavailable():
    with pytest.raises(CallFailure) as caught:
        generate("127.0.0.1:1", attempts=1)
    assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "UNAVAILABLE")


def test_a_deadline_ends_a_call():
    ended = threading.Event()

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield from story("a")[:2]
        ended.wait(HANGS_AFTER)

    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address, deadline=0.2)
    assert caught.value.code == "DEADLINE_EXCEEDED"


def test_a_stream_that_is_left_is_cancelled():
    ended = threading.Event()

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield from story("a")[:2]
        ended.wait(HANGS_AFTER)

    with scripted_server(Generate=script) as address, Connection(Target(address)) as connection:
        stub = InferenceServiceStub(connection.channel)
        stream = connection.stream(stub.Generate, GenerateRequest(text="hello"))
        assert next(stream).HasField("started")
        stream.close()
        assert ended.wait(HANGS_AFTER)


def test_every_call_carries_the_token_and_the_metadata():
    seen: list[dict[str, str]] = []

    def load(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        seen.append({key: value for key, value in context.invocation_metadata() if key != "user-agent"})
        yield GetLoadResponse()

    with scripted_server(GetLoad=load) as address:
        target = Target(address, token="secret", metadata=(("imp-tenant", "search"),))
        with Connection(target) as connection:
            connection.unary(ModelServiceStub(connection.channel).GetLoad, GetLoadRequest())
    assert seen == [{"imp-tenant": "search", "authorization": "Bearer secret"}]


@pytest.mark.parametrize(("code", "n_calls"), [("UNAVAILABLE", 2), ("RESOURCE_EXHAUSTED", 2), ("INTERNAL", 1)])
def test_attempts_are_made_of_what_the_identical_call_may_survive(code: str, n_calls: int):
    calls: list[str] = []

    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        calls.append(request.text)
        refuse(context, grpc.StatusCode[code], "no", ErrorInfo(reason="X", domain="imp.v1"), pushback_ms=1)
        yield

    with scripted_server(Generate=script) as address, pytest.raises(CallFailure) as caught:
        generate(address, attempts=2)
    assert (len(calls), caught.value.code) == (n_calls, code)


def test_a_reply_of_many_megabytes_comes_whole():
    def script(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield GenerateResponse(chunk={"text": "x" * (9 << 20)})

    with scripted_server(Generate=script) as address:
        [reply] = generate(address)
    assert len(reply.chunk.text) == 9 << 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "full (RESOURCE_EXHAUSTED)"),
        ({"retry_after": 0.0}, "full (RESOURCE_EXHAUSTED, try again)"),
        ({"retry_after": 1.5}, "full (RESOURCE_EXHAUSTED, try again in 1.5 s)"),
        ({"text": ""}, "no message (RESOURCE_EXHAUSTED)"),
        ({"reason": "RESOURCE_EXHAUSTED"}, "full"),
    ],
)
def test_a_failure_is_one_line_for_a_person(fields: dict[str, Any], message: str):
    failure = CallFailure(**{"code": "RESOURCE_EXHAUSTED", "reason": "QUEUE_FULL", "text": "full", **fields})
    assert failure.message == message


STARTED = GenerateResponse(started=GenerationStarted(request_id="r"))


def chunk(first_token: int, n_tokens: int = 1, index: int = 0) -> GenerateResponse:
    return GenerateResponse(chunk=GenerationChunk(index=index, first_token=first_token, token_ids=[1] * n_tokens))


def finished(index: int = 0) -> GenerateResponse:
    return GenerateResponse(finished=GenerationFinished(index=index))


def check(*messages: GenerateResponse, n_sequences: int = 1) -> None:
    order = StreamOrder(n_sequences)
    for message in messages:
        order.check(message)
    order.end()


def test_rpc_1_rpc_2_whole_streams_are_in_order():
    check(*story("a", "b"))
    check(STARTED, finished())
    check(STARTED, chunk(0, 3, index=1), chunk(0), chunk(3, index=1), finished(1), chunk(1), finished(), n_sequences=2)
    check(GenerateResponse(), STARTED, GenerateResponse(), finished())  # a kind that this client does not know


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([chunk(0)], "chunk before started"),
        ([STARTED, STARTED], "started again"),
        ([STARTED, chunk(0, 2), chunk(3)], "token 2 expected next, token 3 came"),
        ([STARTED, chunk(0, 2), chunk(0, 2)], "token 2 expected next, token 0 came"),
        ([STARTED, finished(), chunk(0)], "chunk of sequence 0, which had finished"),
        ([STARTED, finished(), finished()], "finished of sequence 0, which had finished"),
        ([STARTED, chunk(0, index=1)], "chunk of sequence 1, which was not asked for"),
        ([STARTED, chunk(0)], "the stream ended before sequence 0 did"),
        ([], "the stream ended before sequence 0 did"),
    ],
)
def test_rpc_1_rpc_2_a_broken_stream_is_noticed(messages: list[GenerateResponse], complaint: str):
    with pytest.raises(StreamBroken, match=complaint):
        check(*messages)


def test_rpc_2_each_message_lost_is_noticed():
    whole = story("a", "b", "c")
    for lost in range(len(whole)):
        with pytest.raises(StreamBroken):
            check(*whole[:lost], *whole[lost + 1 :])


def test_rpc_2_tokens_lost_before_the_end_are_counted_by_the_usage():
    def ended(n_output: int) -> GenerateResponse:
        return GenerateResponse(finished=GenerationFinished(usage={"output_tokens": n_output}))

    check(STARTED, chunk(0, 2), ended(2))
    for n_output in (1, 3):
        with pytest.raises(StreamBroken, match=f"{n_output} tokens were sent, 2 came"):
            check(STARTED, chunk(0, 2), ended(n_output))


@pytest.mark.parametrize("match", [{"token_id": 7}, {"eos_token_id": 2}, {"text": "x"}])
def test_rpc_2_a_stop_token_that_is_kept_comes_and_is_not_in_the_usage(match: dict[str, object]):
    end = GenerateResponse(finished=GenerationFinished(usage={"output_tokens": 2}, match=match))
    kept, plain = StreamOrder(keeps_match=True), StreamOrder()
    for message in (STARTED, chunk(0, 2 if "text" in match else 3), end):
        kept.check(message)
    kept.end()
    for message in (STARTED, chunk(0, 2), end):
        plain.check(message)
    plain.end()


SEVERAL = Target("ipv4:127.0.0.1:1,127.0.0.1:2", resumes=True)


def test_rsm_9_a_late_failure_of_a_server_that_was_left_leaves_no_other() -> None:
    with Connection(SEVERAL) as connection:
        left = connection.sessions
        connection.leave_server(left)
        current = connection.sessions
        assert current is not left
        connection.leave_server(left)
        assert connection.sessions is current
        connection.leave_server(current)
        assert connection.sessions not in (left, current)


def test_rsm_9_threads_that_begin_at_once_share_one_server() -> None:
    with Connection(SEVERAL) as connection, ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            together = threading.Barrier(8)
            found = list(pool.map(lambda _, it=together: (it.wait(), connection.sessions)[1], range(8)))
            assert len(set(found)) == 1
            connection.leave_server(found[0])


def test_rsm_9_a_closed_connection_opens_no_channel() -> None:
    connection = Connection(SEVERAL)
    connection.close()
    with pytest.raises(CallFailure, match="the client was closed"):
        _ = connection.sessions
    assert connection._session_channels == []
