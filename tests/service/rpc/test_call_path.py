"""The path of a call: the order of its checks. Every call ends once, with one status."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.inference import InferenceServicer
from imp_service.serving.refusal import Refusal
from imp_service.telemetry import CallFacts
from support.calls.deadlines import deadline_beyond, let_requests_travel
from support.calls.raw_calls import HEALTH, INFERENCE, call, methods_of
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, ask, serve

GENERATE, UNARY, CHECK = f"/{INFERENCE}/Generate", f"/{INFERENCE}/GenerateUnary", f"/{HEALTH}/Check"
# Part of an exception's message, which only the log may contain.
CANARY = "plover-0815"
METHODS = [method.rpartition("/")[2] for method in methods_of(INFERENCE)]


@pytest.fixture(scope="module")
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address) as it:
        yield it


@pytest.fixture
def endings(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[CallFacts]:
    """Collects the endings of all later calls, in order."""
    told: list[CallFacts] = []
    begin = served.state.telemetry.call

    def call(*arguments: Any, **named: Any) -> Any:
        record = begin(*arguments, **named)
        record.endings = (*record.endings, lambda facts: told.append(dataclasses.replace(facts)))
        return record

    monkeypatch.setattr(served.state.telemetry, "call", call)
    return told


def bug_lines(served: Served) -> list[str]:
    return [line for line in served.log_lines() if '"event": "bug"' in line]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", METHODS)
def test_rpc_14_rpc_41_an_exception_in_any_handler_is_our_bug_and_only_the_log_says_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(InferenceServicer, name)
    errors = [ZeroDivisionError(f"{CANARY} in /home/someone/model.gguf at 0xdeadbeef01")]

    async def fail_once(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return await whole(*arguments)

    monkeypatch.setattr(InferenceServicer, name, fail_once)
    with serve() as served, grpc.insecure_channel(served.address) as channel:
        ended = call(channel, f"/{INFERENCE}/{name}")
        served.wait_until(lambda: len(bug_lines(served)) > 0, "the log says more")
        (line,) = bug_lines(served)
    assert (ended.code, ended.reason, ended.replies) == ("INTERNAL", "BUG", [])
    request_id = ended.details.others["RequestInfo"].request_id
    assert request_id == ended.trailing["imp-request-id"] and request_id in ended.message
    assert CANARY not in f"{ended.message}{ended.details}{ended.trailing}"
    assert "ZeroDivisionError" in line and request_id in line and f"{INFERENCE}/{name}" in line and "frames" in line


@pytest.mark.few(10)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\x7f", b"\x0b" * 5000])
def test_rpc_41_w13_bytes_that_are_no_message_are_a_bad_request(
    channel: grpc.Channel, endings: list[CallFacts], name: str, content: bytes
) -> None:
    ended = call(channel, f"/{INFERENCE}/{name}", content)
    assert (ended.code, ended.reason, ended.details.paths) == ("INVALID_ARGUMENT", "FIELD_INVALID", ["request"])
    (facts,) = endings
    assert (facts.code, facts.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")


def test_rpc_11_identity_is_initial_where_a_call_is_admitted_and_trailing_where_it_is_refused(
    channel: grpc.Channel, served: Served
) -> None:
    good = ask("Once", 2, request_id="mine")
    for method, content in (
        (GENERATE, good.SerializeToString()),
        (UNARY, pb.GenerateUnaryRequest(request=good).SerializeToString()),
    ):
        admitted = call(channel, method, content)
        assert admitted.code == "OK" and admitted.replies
        assert admitted.initial == {"imp-request-id": "mine", "imp-instance-id": served.state.instance_id}
        assert not {"imp-request-id", "imp-instance-id"} & set(admitted.trailing)
        refused = call(channel, method, b"")
        assert refused.code == "INVALID_ARGUMENT" and refused.initial == {}
        assert refused.trailing["imp-instance-id"] == served.state.instance_id
        assert refused.trailing["imp-request-id"]


@pytest.mark.parametrize("name", ["Generate", "GenerateUnary", "DecodeStream"])
def test_rpc_11_a_caller_that_asks_hears_at_once_that_a_server_has_its_call(
    channel: grpc.Channel, served: Served, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asks, instance = (("imp-acknowledge", "1"),), {"imp-instance-id": served.state.instance_id}
    good = ask("Once", 2, request_id="mine")
    content = good if name == "Generate" else pb.GenerateUnaryRequest(request=good)
    if name != "DecodeStream":
        admitted = call(channel, f"/{INFERENCE}/{name}", content.SerializeToString(), asks)
        assert (admitted.code, admitted.initial) == ("OK", instance)
        # What else is to be said of the call comes at its end.
        assert admitted.trailing["imp-request-id"] == "mine" and "imp-instance-id" not in admitted.trailing
    refused = call(channel, f"/{INFERENCE}/{name}", b"\xff", asks)
    assert (refused.code, refused.initial) == ("INVALID_ARGUMENT", instance)
    assert refused.trailing["imp-request-id"] and "imp-instance-id" not in refused.trailing
    # A server that does not take it has no head, so gRPC may repeat the call.
    served.call(lambda: served.state.drain.begin(0))
    served.run(served.state.drain.wait())
    drained = call(channel, f"/{INFERENCE}/{name}", content.SerializeToString(), asks)
    served.call(served.state.drain.resume)
    assert (drained.reason, drained.initial) == ("DRAINING", {}) and instance.items() <= drained.trailing.items()

    whole = getattr(InferenceServicer, name)
    held = [asyncio.Event()]

    async def hang_once(*arguments: Any) -> Any:
        if held:
            await held.pop().wait()
        return await whole(*arguments)

    monkeypatch.setattr(InferenceServicer, name, hang_once)
    with serve() as hung, grpc.insecure_channel(hung.address) as other:
        begun = other.stream_stream(f"/{INFERENCE}/{name}")(iter([b""]), metadata=asks, timeout=HANGS_AFTER)
        assert dict(begun.initial_metadata()) == {"imp-instance-id": hung.state.instance_id}
        begun.cancel()


def test_the_checks_come_in_their_order(endings: list[CallFacts], channel: grpc.Channel, served: Served) -> None:
    """Each call has all later faults too: metadata is checked before the message, the server's phase before both."""
    bad_key = (("imp-priority", "high"),)
    assert call(channel, GENERATE, b"\xff", bad_key).details.paths == ["imp-priority"]
    assert call(channel, GENERATE, b"\xff").details.paths == ["request"]
    served.call(lambda: served.state.drain.begin(0))
    served.run(served.state.drain.wait())
    assert call(channel, GENERATE, b"\xff", bad_key).reason == "DRAINING"
    served.call(served.state.drain.resume)
    assert call(channel, GENERATE, b"\xff", bad_key).reason == "FIELD_INVALID"
    assert [facts.reason for facts in endings] == ["FIELD_INVALID", "FIELD_INVALID", "DRAINING", "FIELD_INVALID"]


def test_a_call_that_ends_is_recorded_once_under_its_own_names(
    channel: grpc.Channel, endings: list[CallFacts], served: Served
) -> None:
    metadata = (("imp-tenant", "acme"), ("imp-priority", "7"))
    call(channel, GENERATE, ask("Once", 3, request_id="mine").SerializeToString(), metadata)
    served.wait_until(lambda: len(endings) == 1, "the call's record ended")
    (facts,) = endings
    assert (facts.request_id, facts.tenant, facts.code, facts.reason) == ("mine", "acme", "OK", "")
    assert (facts.method.path, facts.n_output) == (GENERATE, 3)


@pytest.mark.parametrize(("how", "code"), [("cancel", "CANCELLED"), ("deadline", "DEADLINE_EXCEEDED")])
def test_a_caller_who_leaves_or_is_late_ends_the_call_once(
    endings: list[CallFacts], served: Served, monkeypatch: pytest.MonkeyPatch, how: str, code: str
) -> None:
    entered = asyncio.Event()

    async def wait_for_ever(*_: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("imp_service.rpc.imp_v1.generate.Generate.stream", wait_for_ever)
    if how == "deadline":
        let_requests_travel(monkeypatch)
    with grpc.insecure_channel(served.address) as channel:
        # Measured on an open connection.
        seconds = deadline_beyond(lambda: call(channel, CHECK))
        endings.clear()
        stream = channel.unary_stream(GENERATE)(b"", timeout=seconds if how == "deadline" else HANGS_AFTER)
        served.wait_until(entered.is_set, "the servicer runs")
        if how == "cancel":
            stream.cancel()
        with pytest.raises(grpc.RpcError):
            next(stream)
    served.wait_until(lambda: len(endings) == 1, "the call's record ended")
    assert (endings[0].code, endings[0].reason) == (code, "")
    assert served.state.calls.n_requests == 0


def test_a_call_can_be_ended_from_outside_whatever_it_waits_for(
    served: Served, channel: grpc.Channel, endings: list[CallFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = asyncio.Event()

    async def wait_for_messages(_: Any, requests: AsyncIterator[Message], *__: Any) -> None:
        entered.set()
        async for _ in requests:
            pass

    monkeypatch.setattr("imp_service.rpc.imp_v1.decode_stream.DecodeStream.answer", wait_for_messages)
    stream = channel.stream_stream(f"/{INFERENCE}/DecodeStream")(iter(()), timeout=HANGS_AFTER)
    over = threading.Event()
    silent = channel.stream_stream(f"/{INFERENCE}/DecodeStream")(_nothing_until(over), timeout=HANGS_AFTER)
    list(stream)
    served.wait_until(lambda: entered.is_set() and served.state.calls.n_requests == 1, "one stream waits")
    served.run(served.state.calls.end_requests(Refusal("STALLED", "no progress"), within=5))
    with pytest.raises(grpc.RpcError) as ended:
        next(silent)
    assert ended.value.code() is grpc.StatusCode.INTERNAL and "no progress" in (ended.value.details() or "")
    over.set()
    assert [facts.reason for facts in endings] == ["", "STALLED"]


def _nothing_until(over: threading.Event) -> Iterator[bytes]:
    over.wait(HANGS_AFTER)
    yield from ()
