"""Unused sessions end when they are due: no earlier, in order, and not while a call uses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

import imp_service
from imp_service.api.options import CacheOptions
from imp_service.generation import EngineSession
from imp_service.serving.session.expiry import SessionExpiry
from imp_service.serving.session.held_session import HeldSession
from support.run.patience import HANGS_AFTER


@pytest.fixture(scope="module")
def session() -> Iterator[EngineSession]:
    with imp_service.load() as model:
        yield EngineSession.open(model._runtime)


class Expiry:
    """An expiry with the test's clock, and the names of the ended sessions."""

    def __init__(self, session: EngineSession) -> None:
        self.session = session
        self.now = 0.0
        self.ended: list[str] = []
        self.it = SessionExpiry(lambda: self.now, lambda held: self.ended.append(held.session_id))

    def watched(self, name: str, ttl: float) -> HeldSession:
        held = HeldSession(("", name), self.session, CacheOptions(), ttl, self.now)
        self.it.watch(held)
        return held

    def at(self, now: float) -> list[str]:
        self.now = now
        self.it.expire_due()
        return self.ended


def run(session: EngineSession, act: Callable[[Expiry], None]) -> None:
    async def on_a_loop() -> None:
        expiry = Expiry(session)
        act(expiry)
        expiry.it.close()

    asyncio.run(on_a_loop())


def test_ses_16_sessions_end_when_they_are_due_and_not_before(session: EngineSession) -> None:
    def act(expiry: Expiry) -> None:
        for name, ttl in (("late", 30.0), ("soon", 10.0), ("next", 20.0)):
            expiry.watched(name, ttl)
        assert expiry.at(9.9) == []
        assert expiry.at(10.0) == ["soon"]
        assert expiry.at(30.0) == ["soon", "next", "late"]
        assert expiry.at(99.0) == ["soon", "next", "late"]

    run(session, act)


def test_ses_16_a_use_puts_the_end_off_and_a_call_at_work_more_so(session: EngineSession) -> None:
    def act(expiry: Expiry) -> None:
        used, busy = expiry.watched("used", 10.0), expiry.watched("busy", 10.0)
        used.used_at, busy.is_busy = 5.0, True
        assert expiry.at(10.0) == []
        assert expiry.at(14.9) == []
        assert expiry.at(15.0) == ["used"]
        assert expiry.at(20.0) == ["used"]
        busy.is_busy, busy.used_at = False, 21.0
        assert expiry.at(30.0) == ["used"]
        assert expiry.at(31.0) == ["used", "busy"]

    run(session, act)


def test_ses_16_a_shorter_time_holds_at_once_and_what_is_forgotten_does_not_end(session: EngineSession) -> None:
    def act(expiry: Expiry) -> None:
        held, gone = expiry.watched("held", 100.0), expiry.watched("gone", 1.0)
        expiry.it.forget(gone)
        expiry.it.forget(gone)
        held.ttl = 5.0
        expiry.it.watch(held)
        assert expiry.at(4.9) == []
        assert expiry.at(5.0) == ["held"]
        assert expiry.at(100.0) == ["held"]

    run(session, act)


def test_ses_16_many_that_come_and_go_leave_those_that_stay(session: EngineSession) -> None:
    def act(expiry: Expiry) -> None:
        expiry.watched("stays", 50.0)
        for i in range(500):
            expiry.it.forget(expiry.watched(str(i), 10.0))
        expiry.watched("stays too", 60.0)
        assert expiry.at(10.0) == []
        assert expiry.at(60.0) == ["stays", "stays too"]

    run(session, act)


@pytest.mark.long
def test_ses_16_the_loop_itself_ends_what_is_due(session: EngineSession) -> None:
    async def on_a_loop() -> list[str]:
        ended: list[str] = []
        both = asyncio.Event()

        def end(held: HeldSession) -> None:
            ended.append(held.session_id)
            if len(ended) == 2:
                both.set()

        expiry = SessionExpiry(time.monotonic, end)
        for name, ttl in (("second", 0.05), ("first", 0.02), ("never", 3600.0)):
            expiry.watch(HeldSession(("", name), session, CacheOptions(), ttl, time.monotonic()))
        await asyncio.wait_for(both.wait(), HANGS_AFTER)
        expiry.close()
        return ended

    assert asyncio.run(on_a_loop()) == ["first", "second"]
