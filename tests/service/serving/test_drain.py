"""When a drain refuses new work and when it ends what runs, if other drains join it. On a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from unittest import mock

import pytest

from imp_service.config.server_settings import DrainSettings
from imp_service.serving.drain import Drain
from imp_service.serving.lifecycle import Lifecycle, Phase

# The turns of the loop that the steps of a drain take.
TURNS = 20
DELAY, GRACE = 10, 30


class Server:
    """One request that never ends by itself, on a server that drains."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._now = 0.0
        self._loop.time = lambda: self._now  # type: ignore[method-assign]
        self._cut_at: float | None = None
        self.gone_on_at: float | None = None
        self.n_requests = 1
        self.log = mock.Mock()
        self._idle = self._loop.create_future()
        self.lifecycle = Lifecycle()
        self.lifecycle.loaded()
        settings = DrainSettings(timedelta(seconds=DELAY), timedelta(seconds=GRACE))
        self.drain = Drain(settings, self.lifecycle, self, self.log)  # type: ignore[arg-type]

    async def wait_until_idle(self) -> None:
        await asyncio.shield(self._idle)

    def end_those_that_go_on(self, error: Exception) -> None:
        self.gone_on_at = self._now

    async def end_requests(self, error: Exception, within: float) -> None:
        self._cut_at = self._now
        self.n_requests = 0
        self._idle.set_result(None)

    def begin(self, grace: float | None = None) -> None:
        async def call() -> None:
            self.drain.begin(grace)

        self._loop.run_until_complete(call())

    def times(self, until: int) -> tuple[float | None, float | None]:
        """Returns when new work is refused and when the request is ended, in a drain that goes on to that second."""
        closed_at = None
        while self._now < until:
            self._turn()
            if closed_at is None and self.lifecycle.phase is Phase.DRAINING:
                closed_at = self._now
            self._now += 1
        return closed_at, self._cut_at

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self._turn()
            self._now += 1

    def _turn(self) -> None:
        async def turn() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self._loop.run_until_complete(turn())

    def close(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._turn()
        self._loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    it = Server()
    yield it
    it.close()


def test_lif_5_l03_a_drain_has_its_delay_and_then_its_grace(server: Server) -> None:
    server.begin()
    assert server.times(60) == (DELAY, DELAY + GRACE)
    # Those that go on elsewhere leave when new work is refused.
    assert server.gone_on_at == DELAY


@pytest.mark.parametrize(
    ("at", "grace", "ends_at"),
    [
        (4, 5, DELAY + 5),  # during the delay: the grace begins when the delay ends
        (4, 0, DELAY),
        (4, GRACE + 4, DELAY + GRACE),  # it would end earlier if it began now
        (4, 3600, DELAY + GRACE),
        (20, 5, 25),
        (20, 0, 20),
        (20, 3600, DELAY + GRACE),
    ],
)
def test_l05_another_drain_can_shorten_the_grace_and_nothing_else(
    server: Server, at: int, grace: float, ends_at: int
) -> None:
    server.begin()
    server.wait(at)
    server.begin(grace)
    closed_at, cut_at = server.times(60)
    assert (closed_at if at < DELAY else DELAY, cut_at) == (DELAY, ends_at)
    assert [each.args[0] for each in server.log.info.call_args_list] == ["draining", "drained"]


def test_lif_18_a_drain_that_runs_keeps_its_times_over_a_reload(server: Server) -> None:
    server.begin()
    server.wait(4)
    server.drain.follow(DrainSettings(timedelta(seconds=1), timedelta(seconds=1)))
    server.begin(5)
    assert server.times(60) == (DELAY, DELAY + 5)
