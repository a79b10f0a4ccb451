"""The watchdog: a silent engine ends liveness, a stalled request is ended, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from imp_service.config import Settings
from imp_service.config.server_settings import LogSettings, WatchdogSettings
from imp_service.serving.refusal import Refusal
from imp_service.serving.utilization import UtilizationMeter
from imp_service.serving.watchdog import Watchdog
from imp_service.telemetry import Telemetry
from support.engine.engine_numbers import Graphs, Numbers

SECOND = 1_000_000_000


@dataclass
class Request:
    """A request with the attributes that the watchdog reads."""

    request_id: str = "r-1"
    has_started: bool = True
    is_waiting: bool = True
    is_open: bool = True
    n_output_tokens: int = 3
    n_unread_messages: int = 0
    errors: list[Exception] = field(default_factory=list)

    def end(self, error: Exception) -> None:
        self.errors.append(error)


class Rig:
    """A watchdog with the test's clock, engine numbers and requests."""

    def __init__(self, path: Path) -> None:
        self.now = 10.0
        self.numbers: Numbers | None = Numbers()
        self.requests: list[Request] = []
        self.is_called = True
        self.told: list[bool] = []
        self.stops: list[float] = []
        self.path = path
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        settings = replace(Settings(), log=LogSettings(format="json"))
        self.telemetry = Telemetry(settings, clock=lambda: self.now, log_to=descriptor)
        os.close(descriptor)
        clock = lambda: self.now  # noqa: E731
        self.watchdog = Watchdog(
            WatchdogSettings(request_stall=timedelta(seconds=5), engine_stall=timedelta(seconds=10)),
            lambda: self.numbers,
            lambda: self.requests,
            UtilizationMeter(lambda: self.numbers, lambda: False, clock=clock, wall=clock),
            self.telemetry,
            is_called=lambda: self.is_called,
            on_stopped=lambda: self.stops.append(self.now),
            clock=clock,
        )
        self.watchdog.watch(self.told.append)

    def check_for(self, seconds: float, *, steps: int = 0, silence: bool = False) -> None:
        """Checks every half second; `steps` in each, or silence."""
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            assert self.numbers is not None  # narrows the type
            self.numbers.n_steps += steps
            self.numbers.silence_ns = self.numbers.silence_ns + SECOND // 2 if silence else 0
            self.watchdog.check()

    def lines(self) -> list[dict[str, object]]:
        self.telemetry.close()
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path / "log")
    yield found
    found.telemetry.close()


def test_l02_lif_2_an_engine_without_a_step_is_not_alive_until_it_steps_again(rig: Rig) -> None:
    rig.check_for(10, silence=True)
    assert (rig.watchdog.is_alive, rig.told) == (True, [])
    rig.check_for(0.5, silence=True)
    assert (rig.watchdog.is_alive, rig.told) == (False, [False])
    rig.check_for(3, silence=True)
    assert rig.told == [False]
    rig.check_for(0.5, steps=1)
    assert (rig.watchdog.is_alive, rig.told) == (True, [False, True])
    assert [line["event"] for line in rig.lines()] == ["engine stalled", "engine alive"]


def test_y01_lif_2_an_engine_that_has_ended_without_a_word_is_reported(rig: Rig) -> None:
    assert rig.numbers is not None  # narrows the type
    rig.check_for(5, steps=1)
    rig.numbers.stopped = True
    rig.check_for(0.5)
    assert rig.stops == []  # it may still report why
    rig.check_for(0.5)
    assert rig.stops == [rig.now]


def test_lif_2_neither_rest_nor_load_nor_loading_ends_liveness(rig: Rig) -> None:
    assert rig.numbers is not None  # narrows the type
    rig.check_for(60)
    rig.numbers.running, rig.numbers.waiting = 64, 2560
    rig.check_for(60, steps=10)
    rig.numbers = None
    for _ in range(100):
        rig.now += 1
        rig.watchdog.check()
    assert rig.told == []


def test_r16_lif_15_a_request_that_is_skipped_is_ended_and_reported(rig: Rig) -> None:
    """Other requests make progress; only this one gets nothing."""
    stuck, other = Request(), Request("r-2")
    rig.requests = [stuck, other]
    for _ in range(12):
        other.n_output_tokens += 1
        rig.check_for(0.5, steps=3)
    (error,) = stuck.errors
    assert isinstance(error, Refusal)  # narrows the type
    assert (error.reason, other.errors) == ("STALLED", [])
    series = rig.telemetry.metrics.render().decode()
    assert "imp_requests_stalled_total 1.0" in series
    (line,) = rig.lines()
    assert (line["event"], line["id"], line["output_tokens"]) == ("request stalled", "r-1", 3)


@pytest.mark.parametrize("is_open", [True, False])
def test_r16_a_lost_wake_up_is_found_while_the_engine_rests(rig: Rig, is_open: bool) -> None:
    """The engine is idle while the request waits for it: the notice of its end, or of unread messages, was lost."""
    rig.requests = [Request(is_open=is_open, n_unread_messages=0 if is_open else 2)]
    rig.check_for(5)
    assert rig.requests[0].errors == []
    rig.check_for(1)
    assert len(rig.requests[0].errors) == 1


@pytest.mark.parametrize(
    "request_",
    [Request(has_started=False), Request(is_waiting=False)],
    ids=["queued or in prefill", "paused, or its caller reads slowly"],
)
def test_r16_a_queued_or_paused_request_is_not_stalled(rig: Rig, request_: Request) -> None:
    rig.requests = [request_]
    rig.check_for(60, steps=10)
    rig.check_for(60)
    assert request_.errors == []


def test_grf_3_a_capture_that_fails_is_said_once_with_the_reason(rig: Rig) -> None:
    assert rig.numbers is not None  # narrows the type
    rig.numbers.graphs = Graphs(captures=4)
    rig.check_for(1, steps=1)  # no failure to report
    rig.numbers.graphs = Graphs(captures=4, failures=1, last_failure="cudaErrorStreamCaptureInvalidated")
    rig.check_for(2, steps=1)
    [line] = [line for line in rig.lines() if line["event"] == "capture failed"]
    assert (line["why"], line["failures"]) == ("cudaErrorStreamCaptureInvalidated", 1)


def test_r16_a_long_step_does_not_stall_its_requests_but_two_without_progress_do(rig: Rig) -> None:
    rig.requests = [Request()]
    rig.check_for(9, silence=True)
    rig.check_for(0.5, steps=1, silence=True)
    assert rig.requests[0].errors == []
    rig.check_for(0.5, steps=1, silence=True)
    assert len(rig.requests[0].errors) == 1


def test_r16_a_request_is_not_stalled_after_a_preemption(rig: Rig) -> None:
    assert rig.numbers is not None  # narrows the type
    rig.requests = [Request()]
    rig.check_for(1, steps=1)
    rig.numbers.n_preemptions += 1
    # Work goes on: at every check the engine is busy.
    for _ in range(60):
        rig.now += 0.5
        rig.numbers.n_steps += 5
        rig.numbers.silence_ns = 1000
        rig.watchdog.check()
    assert rig.requests[0].errors == []


def test_r16_a_request_that_waits_for_blocks_of_sessions_is_not_stalled(rig: Rig) -> None:
    """It was preempted, and nothing can run: the engine is idle until a session ends."""
    assert rig.numbers is not None  # narrows the type
    rig.requests = [Request()]
    rig.numbers.waiting = 1
    rig.check_for(60)
    assert rig.requests[0].errors == []


def test_the_watchdog_goes_on_after_a_failed_check(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([ValueError("of one request"), None, asyncio.CancelledError()])

    async def no_wait(_: float) -> None:
        pass

    def look() -> None:
        if (raised := next(looks)) is not None:
            raise raised

    monkeypatch.setattr(asyncio, "sleep", no_wait)
    monkeypatch.setattr(rig.watchdog, "check", look)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rig.watchdog.run())
    assert next(looks, "used up") == "used up"
    assert [line["event"] for line in rig.lines()] == ["watchdog"]


def test_an_idle_watchdog_checks_again_at_a_call(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(rig.watchdog, "check", lambda: looks.append(rig.is_called))

    async def turn() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def scene() -> None:
        rig.is_called = False
        running = asyncio.create_task(rig.watchdog.run())
        await turn()
        assert looks == [False]
        rig.is_called = True
        await turn()
        assert looks == [False], "nobody told it"
        rig.watchdog.wake()
        await turn()
        running.cancel()

    asyncio.run(scene())
    assert looks == [False, True]


@pytest.mark.parametrize("numbers", [Numbers(silence_ns=1), Numbers(waiting=1), Numbers(stopped=True)])
def test_a_busy_engine_is_checked_without_callers(numbers: Numbers, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", note)
    rig.is_called, rig.numbers = False, numbers
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rig.watchdog.run())
    assert pauses == [0.5]


@pytest.mark.long
def test_r16_a_place_that_is_taken_again_begins_anew(rig: Rig) -> None:
    """Observations of a request that has ended do not apply to the next one."""
    rig.requests = [Request()]
    rig.check_for(4, steps=3)
    rig.requests = []
    rig.check_for(2, steps=3)
    rig.requests = [Request()]
    rig.check_for(4, steps=3)
    assert rig.requests[0].errors == []
