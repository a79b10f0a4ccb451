"""The load: rates over their windows, and watchers that hear only of changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from imp_service.serving.utilization import Utilization, UtilizationMeter
from support.engine.engine_numbers import Numbers


class Meter:
    """A meter with the test's numbers and clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.numbers: Numbers | None = Numbers()
        self.is_draining = False
        self.meter = UtilizationMeter(
            lambda: self.numbers, lambda: self.is_draining, clock=lambda: self.now, wall=lambda: 2 * self.now
        )

    def pass_seconds(self, seconds: int, *, outputs: int = 0, cached: int = 0, prefilled: int = 0) -> None:
        """Advances the clock by `seconds`, with this many tokens in each."""
        for _ in range(seconds):
            self.now += 1.0
            assert self.numbers is not None  # narrows the type
            self.numbers.n_outputs += outputs
            self.numbers.n_cached_tokens += cached
            self.numbers.n_prefill_rows += prefilled
            self.meter.sample()


@pytest.fixture
def at() -> Meter:
    return Meter()


def test_rpc_16_the_load_is_the_engines(at: Meter) -> None:
    at.numbers = Numbers(
        running=3, waiting=2, waiting_tokens=70, sessions=5, blocks_live=3, blocks_free=9, silence_ns=1_500_000_000
    )
    at.is_draining = True
    assert at.meter.snapshot() == Utilization(2000.0, 3, 2, 70, 5, 0.25, 0.0, 0.0, 1.5, True)


def test_rpc_16_there_is_a_load_before_there_is_a_model(at: Meter) -> None:
    at.numbers = None
    at.meter.sample()
    assert at.meter.snapshot() == Utilization(2000.0)


def test_rpc_16_output_is_of_the_last_ten_seconds(at: Meter) -> None:
    at.pass_seconds(30, outputs=50)
    assert at.meter.snapshot().output_tokens_per_second == pytest.approx(50)
    at.pass_seconds(5, outputs=100)
    assert at.meter.snapshot().output_tokens_per_second == pytest.approx(75)
    at.pass_seconds(10)
    assert at.meter.snapshot().output_tokens_per_second == 0


def test_spc_27_guesses_are_of_the_last_ten_seconds(at: Meter) -> None:
    assert at.numbers is not None  # narrows the type
    for _ in range(20):
        at.numbers.drafts.n_drafted += 8
        at.numbers.drafts.n_accepted += 6
        at.pass_seconds(1)
    found = at.meter.snapshot()
    assert (found.draft_tokens_per_second, found.accepted_draft_tokens_per_second) == (8, 6)
    at.pass_seconds(10)
    found = at.meter.snapshot()
    assert (found.draft_tokens_per_second, found.accepted_draft_tokens_per_second) == (0, 0)


def test_rpc_16_hits_are_of_the_last_minute(at: Meter) -> None:
    at.pass_seconds(30, cached=30, prefilled=10)
    assert at.meter.snapshot().cache_hit_rate == pytest.approx(0.75)
    at.pass_seconds(30, prefilled=40)
    assert at.meter.snapshot().cache_hit_rate == pytest.approx(900 / 2400)
    at.pass_seconds(30, prefilled=40)
    assert at.meter.snapshot().cache_hit_rate == 0


def test_rpc_16_rates_of_the_first_second_are_not_exaggerated(at: Meter) -> None:
    assert at.numbers is not None  # narrows the type
    at.now += 0.01
    at.numbers.n_outputs = 20
    assert at.meter.snapshot().output_tokens_per_second == 20


def test_rpc_16_samples_have_a_bound(at: Meter) -> None:
    at.pass_seconds(1000, outputs=1)
    for _ in range(1000):
        at.meter.sample()
    assert len(at.meter._samples) <= 62


def test_rpc_16_r19_a_watcher_is_notified_of_changes_only(at: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are skipped while nobody reads: the meter keeps nothing for a watcher."""
    waits: list[float] = []
    changes = iter([{"running": 1}, {}, {}, {"running": 2}])

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        at.now += seconds
        assert at.numbers is not None  # narrows the type
        at.numbers = replace(at.numbers, **next(changes))

    monkeypatch.setattr(asyncio, "sleep", wait)

    async def read() -> list[int]:
        watcher = at.meter.watch(2.0)
        found = [(await anext(watcher)).running for _ in range(2)]
        assert at.numbers is not None  # narrows the type
        at.numbers = replace(at.numbers, running=7)  # while nobody reads
        found.append((await anext(watcher)).running)
        found.append((await anext(watcher)).running)
        return found

    assert asyncio.run(read()) == [0, 1, 7, 2]
    assert waits == [2.0] * 4
