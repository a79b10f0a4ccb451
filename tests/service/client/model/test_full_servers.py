"""A server that has no room for another session: sessions that a program has dropped make room, others do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import imp_service
from support.served import Served, serve

PROMPT = [300, 400, 500]


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A server with room for one session."""
    with serve("sessions.max=1") as served:
        yield served


def test_cnt_1_a_dropped_session_makes_room(small: Served) -> None:
    with imp_service.connect(small.address) as client:
        for _ in range(20):
            client.open().prefill(PROMPT)
    small.wait_for_rest()


def test_cnt_1_a_session_that_a_task_drops_makes_room(small: Served) -> None:
    async def drop() -> None:
        async with imp_service.connect_async(small.address) as client:
            for _ in range(20):
                await client.open().prefill(PROMPT)

    small.run(drop())
    small.wait_for_rest()


def test_cnt_1_a_generation_frees_dropped_sessions(small: Served) -> None:
    with imp_service.connect(small.address) as client:
        client.open().prefill(PROMPT)
        client.generate(PROMPT, max_tokens=1).result()
        small.wait_until(lambda: not small.host.sessions.held(), "the session is freed")


@pytest.mark.long
def test_cnt_1_a_server_that_will_be_full_for_long_is_told_at_once(small: Served) -> None:
    with imp_service.connect(small.address) as client, client.open() as session:
        session.prefill(PROMPT)
        with pytest.raises(imp_service.Error) as caught:
            client.open().prefill(PROMPT)
        assert caught.value.reason == "SESSIONS_FULL"
        assert (caught.value.retry_after or 0) > 10
    small.wait_for_rest()
