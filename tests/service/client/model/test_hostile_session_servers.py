"""Servers that misbehave while sessions go on: they die, lose, refuse, or open another session than was asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from imp_service.api.errors import InternalError
from imp_service.client import patience
from imp_service.pb import inference_pb2 as pb
from support.calls.kinds_of_clients import client_of, refused
from support.run.patience import HANGS_AFTER
from support.servers.breaking_servers import UNAVAILABLE, broken
from support.servers.scripted_server import RESUMABLE, Script, refuse, scripted_server

ANSWER = {"origin": RESUMABLE, "base": 1, "prompt_token_ids": [5], "output": {"position": 1, "token_id": 7}}


def prefilled(request: pb.PrefillRequest, **fields: Any) -> pb.PrefillResponse:
    return pb.PrefillResponse(session_id=request.session_id, **{**ANSWER, **fields})


def opens(request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillResponse]:
    yield prefilled(request)


def lost(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
    refuse(context, grpc.StatusCode.NOT_FOUND, "gone", ErrorInfo(reason="SESSION_NOT_FOUND"))
    yield pb.DecodeStepResponse()


@contextmanager
def session_of(kind: str = "threads", **scripts: Script) -> Iterator[tuple[Any, Any]]:
    """Yields a client of a scripted server, and a session of one token."""
    with scripted_server(**{"Prefill": opens, **scripts}) as address, client_of(address, kind) as client:
        session = client.open(temperature=0)
        session.prefill("a")
        yield client, session


def test_rsm_9_a_server_that_dies_at_each_step_ends_it_after_three() -> None:
    asked: list[pb.DecodeStepRequest] = []

    def dies(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
        asked.append(request)
        context.abort(UNAVAILABLE, "Socket closed")
        yield pb.DecodeStepResponse()

    for kind in ("threads", "tasks"):
        with session_of(kind, DecodeStep=dies) as (_, session):
            assert refused(session).reason == "UNAVAILABLE"
    assert len(asked) == 2 * patience.MOST_FRUITLESS


def test_rsm_9_a_server_that_loses_each_session_is_not_asked_for_ever() -> None:
    opened: list[pb.PrefillRequest] = []

    def opens(request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillResponse]:
        opened.append(request)
        yield prefilled(request)

    with session_of(Prefill=opens, DecodeStep=lost) as (_, session):
        assert refused(session).reason == "SESSION_NOT_FOUND"
    first, *again = opened
    assert len(again) == patience.MOST_FRUITLESS
    assert len({each.session_id for each in opened}) == len(opened)
    for each in again:
        assert (list(each.token_ids.ids), each.base, each.position, each.sampling) == ([5], 1, 0, first.sampling)
        assert (each.resume.token_id, each.resume.text_from, each.step.sample) == (7, 1, True)
        assert each.resume.origin == RESUMABLE


WRONG: dict[str, dict[str, Any]] = {
    "no origin": {"origin": None},
    "another origin": {"origin": {"server": "f" * 16, "request": RESUMABLE.request}},
    "another token": {"output": {"position": 1, "token_id": 8}},
    "another position": {"output": {"position": 2, "token_id": 7}},
}


@pytest.mark.parametrize("name", WRONG)
def test_rsm_9_a_server_that_opens_another_session_is_left(name: str) -> None:
    """Such as one of an earlier revision, which ignores `resume`. What it opened is freed, and not used."""
    released: list[str] = []
    stepped: list[str] = []
    opened: list[str] = []

    def opens(request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillResponse]:
        opened.append(request.session_id)
        yield prefilled(request, **(WRONG[name] if request.HasField("resume") else {}))

    def lost(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
        stepped.append(request.steps[0].session_id)
        refuse(context, grpc.StatusCode.NOT_FOUND, "gone", ErrorInfo(reason="SESSION_NOT_FOUND"))
        yield pb.DecodeStepResponse()

    def release(request: pb.ReleaseSessionRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        released.append(request.session_id)
        yield pb.ReleaseSessionResponse(released=True)

    with session_of(Prefill=opens, DecodeStep=lost, ReleaseSession=release) as (_, session):
        for _ in range(2):
            assert refused(session).reason == "SESSION_NOT_FOUND"
        session.close()
    assert released[:2] == opened[1:]
    assert not set(stepped) & set(opened[1:])


def test_rsm_9_a_session_without_an_origin_is_not_opened_again() -> None:
    opened: list[pb.PrefillRequest] = []

    def opens(request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillResponse]:
        opened.append(request)
        yield prefilled(request, origin=None)

    with session_of(Prefill=opens, DecodeStep=lost) as (_, session):
        assert refused(session).reason == "SESSION_NOT_FOUND"
    assert len(opened) == 1


def test_rsm_9_a_timeout_is_for_all_calls_together() -> None:
    def loading(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
        broken(context, "LOADING", 0.01)
        yield pb.DecodeStepResponse()

    with session_of(DecodeStep=loading) as (_, session):
        began = time.monotonic()
        error = refused(session, lambda it: it.decode_step(timeout=0.5))
        assert error.reason in ("LOADING", "DEADLINE_EXCEEDED")
        assert time.monotonic() - began < 0.5 + HANGS_AFTER


def test_rsm_9_closing_the_client_ends_a_step_that_waits() -> None:
    def loading(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
        broken(context, "LOADING", 20.0)
        yield pb.DecodeStepResponse()

    def close_when_it_waits(client: Any) -> None:
        while not client._connection._pauses:
            threading.Event().wait(0.001)
        client.close()

    with session_of(DecodeStep=loading) as (client, session):
        closer = threading.Thread(target=close_when_it_waits, args=(client,))
        closer.start()
        began = time.monotonic()
        assert refused(session).reason == "CANCELLED"
        closer.join()
        assert time.monotonic() - began < 15


def test_rsm_9_a_generation_with_other_tokens_is_found_out() -> None:
    tokens = iter([[5, 6], [5, 8]])

    def generate(request: pb.GenerateRequest, context: grpc.ServicerContext) -> Iterator[pb.GenerateResponse]:
        yield pb.GenerateResponse(started={"prompt_tokens": 1})
        for i, token in enumerate(next(tokens)):
            yield pb.GenerateResponse(chunk={"first_token": i, "token_ids": [token]})
        broken(context)

    with (
        session_of(Generate=generate) as (_, session),
        pytest.raises(InternalError, match="token 1 is another one than before"),
    ):
        session.generate(max_tokens=9).result()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_rsm_9_a_late_failure_of_a_server_that_was_left_leaves_no_other(kind: str) -> None:
    """A session leaves a server that drains, and opens elsewhere; a slow step of another one fails behind it."""
    servers: dict[str, list[str]] = {"a": [], "b": []}
    slow_began, may_fail = threading.Event(), threading.Event()

    def named(name: str) -> dict[str, Script]:
        def opens(request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillResponse]:
            servers[name].append(request.session_id)
            yield prefilled(request)

        def steps(request: pb.DecodeStepRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeStepResponse]:
            is_known = request.steps[0].session_id in servers[name]
            if is_known and drains and drains[0] == name:
                if request.steps[0].token_ids:
                    slow_began.set()
                    may_fail.wait(HANGS_AFTER)
                broken(context)
            if not is_known:
                yield from lost(request, context)
            yield pb.DecodeStepResponse(results=[{"output": {"position": 2, "token_id": 8}}])

        return {"Prefill": opens, "DecodeStep": steps}

    drains: list[str] = []
    with (
        scripted_server(**named("a")) as a,
        scripted_server(**named("b")) as b,
        client_of(f"ipv4:{a},{b}", kind) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        slow, fast = client.open(temperature=0), client.open(temperature=0)
        for each in (slow, fast):
            each.prefill("a")
        connection = (client if kind == "threads" else client._client)._connection
        drains += [name for name, opened in servers.items() if opened]
        late = pool.submit(lambda: slow.decode_step([9]))
        slow_began.wait(HANGS_AFTER)
        current = connection.sessions
        while connection.sessions is current:
            fast.decode_step()
        current = connection.sessions
        may_fail.set()
        late.result(HANGS_AFTER)
        assert connection.sessions is current
