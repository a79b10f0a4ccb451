"""What connect() accepts, and the errors of calls that an in-process model does not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

import imp_service
from imp_service import Error, FieldsInvalid, InternalError, InvalidArgument, ResourceExhausted, StateError
from imp_service.client.connect import target_of
from imp_service.pb.inference_pb2 import GenerateResponse
from support.calls.kinds_of_clients import client_of
from support.servers.loop_thread import loop_thread
from support.servers.scripted_server import refuse, scripted_server, story
from support.servers.secured import TOKEN, secured

PROMPT = "Once upon a time"


def full(request: Any, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
    info = ErrorInfo(reason="QUEUE_FULL", domain="imp.v1", metadata={"bound": "scheduler.max_waiting"})
    retry = RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))
    refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "256 requests wait", info, retry)
    yield from ()


def error_of(address: str, **options: Any) -> Error:
    """Returns the error of a generation. Threads and tasks get the same."""
    with imp_service.connect(address, **options) as client, pytest.raises(Error) as caught:
        client.generate(PROMPT, max_tokens=4).result()

    async def generate() -> None:
        async with imp_service.connect_async(address, **options) as client:
            await client.generate(PROMPT, max_tokens=4).result()

    with pytest.raises(type(caught.value)) as other:
        loop_thread().run(generate())
    error = caught.value
    assert (error.reason, error.retry_after) == (other.value.reason, other.value.retry_after)
    return error


def test_cnt_1_an_error_has_what_the_server_said_of_it() -> None:
    with scripted_server(Generate=full) as address:
        error = error_of(address, attempts=1)
    assert isinstance(error, ResourceExhausted)
    assert (error.reason, error.message, error.retry_after) == ("QUEUE_FULL", "256 requests wait", 2.5)
    assert error.details == {"bound": "scheduler.max_waiting"}


def test_cnt_1_a_call_is_made_again_where_the_server_refused_it_for_a_while() -> None:
    calls: list[int] = []

    def later(request: Any, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        calls.append(1)
        if len(calls) % 2:
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "wait", ErrorInfo(reason="QUEUE_FULL"), pushback_ms=1)
        yield from story("a")

    with scripted_server(Generate=later) as address, imp_service.connect(address) as client:
        assert client.generate(PROMPT).result().text == "a"
    assert len(calls) == 2


def test_cnt_1_a_lost_message_is_reported() -> None:
    whole = story("a", "b", "c")
    for kept in (whole[:2] + whole[3:], whole[:-1], whole[1:]):
        with scripted_server(Generate=lambda request, context, kept=kept: iter(kept)) as address:
            error = error_of(address)
        assert isinstance(error, InternalError) and error.reason == "STREAM_BROKEN"


def test_cnt_1_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    absent = f"unix://{tmp_path}/nothing"
    error = error_of(absent, attempts=1)
    assert isinstance(error, StateError) and error.reason == "UNAVAILABLE"
    assert error.message == f"{absent}: nothing listens there; imp serve starts a server, target= names another"


def test_cnt_1_a_caller_shows_its_token(tmp_path: Path) -> None:
    with secured(tmp_path) as served:
        ca = f"{tmp_path}/ca.pem"
        with imp_service.connect(served.address, ca=ca, token=TOKEN) as client:
            assert client.info().name == "imp demo"
        for options, reason in (({}, "TOKEN_MISSING"), ({"token": "another"}, "TOKEN_INVALID")):
            with imp_service.connect(served.address, ca=ca, **options) as client, pytest.raises(Error) as caught:
                client.generate(PROMPT).result()
            assert isinstance(caught.value, InvalidArgument) and caught.value.reason == reason
        with imp_service.connect(served.address, attempts=1) as client, pytest.raises(StateError) as closed:
            client.info()
        assert closed.value.message.endswith("it may expect TLS: tls=, ca= FILE")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"target": "http://localhost:50051"}, "target"),
        ({"target": "localhost:0"}, "target"),
        ({"cert": "cert.pem"}, "cert"),
        ({"attempts": 6}, "attempts"),
        ({"token": "two\nlines"}, "token"),
        ({"token": ""}, "token"),
        ({"metadata": {"Imp-Tenant": "a"}}, "metadata['Imp-Tenant']"),
        ({"metadata": {"imp-tenant": "ä"}}, "metadata['imp-tenant']"),
    ],
)
def test_cnt_1_an_option_that_cannot_be_is_refused_at_once(options: dict[str, Any], field: str) -> None:
    for connect in (imp_service.connect, imp_service.connect_async):
        with pytest.raises(FieldsInvalid) as caught:
            connect(**options)
        assert caught.value.field == field


def test_cnt_1_a_certificate_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(FieldsInvalid, match="holds no certificate"):
        imp_service.connect(ca=f"{tmp_path}/ca.pem")
    with pytest.raises(FileNotFoundError):
        imp_service.connect(ca=f"{tmp_path}/nothing.pem")


def test_cnt_1_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMP_TARGET", raising=False)
    assert target_of(None, {}).address == "127.0.0.1:50051"
    monkeypatch.setenv("IMP_TARGET", "there:7")
    assert target_of(None, {}).address == "there:7"
    assert target_of("here", {}).address == "here:50051"


def test_cnt_1_each_call_brings_metadata_tenant_and_priority() -> None:
    found: dict[str, Any] = {}

    def keep(request: Any, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        found.update({key: value for key, value in context.invocation_metadata() if key.startswith(("imp-", "x-"))})
        found["model"] = request.model
        yield from story("a")

    with (
        scripted_server(Generate=keep) as address,
        imp_service.connect(address, metadata={"x-of": "all"}, model="demo") as client,
    ):
        client.generate(PROMPT, tenant="search", priority=-3).result()
    assert found == {"x-of": "all", "imp-tenant": "search", "imp-priority": "-3", "model": "demo"}
    with pytest.raises(FieldsInvalid) as caught:
        client.generate(PROMPT, tenant="zwölf")
    assert caught.value.field == "tenant"


@pytest.mark.long
def test_cnt_1_what_no_message_can_hold_is_refused_at_once() -> None:
    with imp_service.connect("127.0.0.1:1") as client, pytest.raises(FieldsInvalid) as caught:
        client.generate(PROMPT, max_tokens=-1)  # no message can hold it: nothing is sent
    assert caught.value.field == "stop.max_tokens"


@pytest.mark.parametrize("kind", ["threads", "tasks"])
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.1:2"])
@pytest.mark.parametrize("has_called", [True, False])
def test_a_closed_client_refuses_every_call(kind: str, address: str, has_called: bool) -> None:
    """Also one that has made none before: gRPC has no stubs of a closed channel."""
    with client_of(address, kind, attempts=1) as client:
        session = client.open()
        for act in (lambda: client.tokenize(PROMPT), lambda: session.prefill(PROMPT)) if has_called else ():
            with pytest.raises(StateError, match="nothing listens there"):
                act()
        if kind == "threads":
            client.close()
        else:
            loop_thread().run(client._client.close())
        for act in (
            lambda: client.generate(PROMPT).result(),
            lambda: session.prefill(PROMPT),
            lambda: client.tokenize(PROMPT),
        ):
            with pytest.raises(StateError, match="the client was closed"):
                act()
        session.close()
