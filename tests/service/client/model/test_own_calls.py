"""Calls that a client makes on its own behalf bring the token of the client, and the tenant of the session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from unittest import mock

import pytest

import imp_service
from imp_service.client.failure import CallFailure
from imp_service.client.model.session import SessionServer
from imp_service.client.patience import Patience
from imp_service.pb import inference_pb2 as pb
from support.servers.secured import TOKEN
from support.servers.served import Served, serve

PROMPT = [300, 400, 500]
TENANT = "search"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that requires a token, has sessions for each tenant, and has room for one of them."""
    tokens = tmp_path_factory.mktemp("small") / "tokens"
    tokens.write_text(f"{hashlib.sha256(TOKEN.encode()).hexdigest()} data,read *\n")
    tokens.chmod(0o600)
    caller = (("authorization", f"Bearer {TOKEN}"),)
    with serve("sessions.max=1", f"auth.token_file={tokens}", metadata=caller) as served:
        yield served


def is_freed(served: Served) -> bool:
    return not served.state.sessions.held()


def test_cnt_1_a_session_that_is_closed_is_freed(small: Served) -> None:
    with imp_service.connect(small.address, token=TOKEN) as client:
        with client.open(tenant=TENANT) as session:
            session.prefill(PROMPT)
        assert small.call(lambda: is_freed(small))


def test_cnt_1_a_session_that_is_dropped_is_freed_and_makes_room_for_one_of_its_tenant(
    small: Served,
) -> None:
    with imp_service.connect(small.address, token=TOKEN) as client:
        client.open(tenant=TENANT).prefill(PROMPT)
        session = client.open(tenant=TENANT)
        session.prefill(PROMPT)
        assert session.decode_step([600]).position == 4
        session.close()
        client.open(tenant=TENANT).prefill(PROMPT)
    small.wait_until(lambda: is_freed(small), "closing the client frees the session")


def test_cnt_1_a_call_that_is_made_again_when_there_is_room_is_the_same_call() -> None:
    made: list[tuple[object, object, object]] = []

    class Full:
        """A connection to a server that has room for the second call, when the first session is freed."""

        has_started = True
        sessions = mock.Mock()

        def unary(self, method: object, request: object, *, metadata: object = (), timeout: object = None) -> str:
            made.append((request, metadata, timeout))
            if len(made) == 1:
                raise CallFailure("RESOURCE_EXHAUSTED", "SESSIONS_FULL", "1 session is open")
            return "opened"

        def wait_for_started(self) -> None:
            made.append(("freed", (), None))

    server = SessionServer(Full())  # type: ignore[arg-type]
    request, metadata = pb.PrefillRequest(session_id="a"), (("imp-tenant", TENANT),)
    assert server._reply(request, metadata, Patience(1, 3.0, lambda: 0.0)) == "opened"
    assert made == [(request, metadata, 3.0), ("freed", (), None), (request, metadata, 3.0)]


def test_cnt_1_a_session_of_a_task_is_freed_and_makes_room_for_one_of_its_tenant(small: Served) -> None:
    async def use() -> None:
        async with imp_service.connect_async(small.address, token=TOKEN) as client:
            async with client.open(tenant=TENANT) as session:
                await session.prefill(PROMPT)
            assert is_freed(small)
            await client.open(tenant=TENANT).prefill(PROMPT)
            session = client.open(tenant=TENANT)
            await session.prefill(PROMPT)
            assert (await session.decode_step([600])).position == 4
            await session.close()
            await client.open(tenant=TENANT).prefill(PROMPT)

    small.run(use())
    small.wait_until(lambda: is_freed(small), "closing the client frees the session")
