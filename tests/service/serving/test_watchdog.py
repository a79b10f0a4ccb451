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
from support.engine_numbers import Graphs, Numbers

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


class Yard:
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

    def look_for(self, seconds: float, *, steps: int = 0, silence: bool = False) -> None:
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
def yard(tmp_path: Path) -> Iterator[Yard]:
    found = Yard(tmp_path / "log")
    yield found
    found.telemetry.close()


def test_l02_lif_2_an_engine_without_a_step_is_not_alive_until_it_steps_again(yard: Yard) -> None:
    yard.look_for(10, silence=True)
    assert (yard.watchdog.is_alive, yard.told) == (True, [])
    yard.look_for(0.5, silence=True)
    assert (yard.watchdog.is_alive, yard.told) == (False, [False])
    yard.look_for(3, silence=True)
    assert yard.told == [False]
    yard.look_for(0.5, steps=1)
    assert (yard.watchdog.is_alive, yard.told) == (True, [False, True])
    assert [line["event"] for line in yard.lines()] == ["engine stalled", "engine alive"]


def test_y01_lif_2_an_engine_that_has_ended_without_a_word_is_reported(yard: Yard) -> None:
    assert yard.numbers is not None  # narrows the type
    yard.look_for(5, steps=1)
    yard.numbers.stopped = True
    yard.look_for(0.5)
    assert yard.stops == []  # it may still report why
    yard.look_for(0.5)
    assert yard.stops == [yard.now]


def test_lif_2_neither_rest_nor_load_nor_loading_ends_liveness(yard: Yard) -> None:
    assert yard.numbers is not None  # narrows the type
    yard.look_for(60)
    yard.numbers.running, yard.numbers.waiting = 64, 2560
    yard.look_for(60, steps=10)
    yard.numbers = None
    for _ in range(100):
        yard.now += 1
        yard.watchdog.check()
    assert yard.told == []


def test_r16_lif_15_a_request_that_is_skipped_is_ended_and_reported(yard: Yard) -> None:
    """Other requests make progress; only this one gets nothing."""
    stuck, other = Request(), Request("r-2")
    yard.requests = [stuck, other]
    for _ in range(12):
        other.n_output_tokens += 1
        yard.look_for(0.5, steps=3)
    (error,) = stuck.errors
    assert isinstance(error, Refusal)  # narrows the type
    assert (error.reason, other.errors) == ("STALLED", [])
    series = yard.telemetry.metrics.render().decode()
    assert "imp_requests_stalled_total 1.0" in series
    (line,) = yard.lines()
    assert (line["event"], line["id"], line["output_tokens"]) == ("request stalled", "r-1", 3)


@pytest.mark.parametrize("is_open", [True, False])
def test_r16_a_lost_wake_up_is_found_while_the_engine_rests(yard: Yard, is_open: bool) -> None:
    """The engine is idle while the request waits for it: the notice of its end, or of unread messages, was lost."""
    yard.requests = [Request(is_open=is_open, n_unread_messages=0 if is_open else 2)]
    yard.look_for(5)
    assert yard.requests[0].errors == []
    yard.look_for(1)
    assert len(yard.requests[0].errors) == 1


@pytest.mark.parametrize(
    "request_",
    [Request(has_started=False), Request(is_waiting=False)],
    ids=["queued or in prefill", "paused, or its caller reads slowly"],
)
def test_r16_who_waits_for_others_is_not_stuck(yard: Yard, request_: Request) -> None:
    yard.requests = [request_]
    yard.look_for(60, steps=10)
    yard.look_for(60)
    assert request_.errors == []


def test_grf_3_a_capture_that_fails_is_said_once_with_the_reason(yard: Yard) -> None:
    assert yard.numbers is not None  # narrows the type
    yard.numbers.graphs = Graphs(captures=4)
    yard.look_for(1, steps=1)  # no failure to report
    yard.numbers.graphs = Graphs(captures=4, failures=1, last_failure="cudaErrorStreamCaptureInvalidated")
    yard.look_for(2, steps=1)
    [line] = [line for line in yard.lines() if line["event"] == "capture failed"]
    assert (line["why"], line["failures"]) == ("cudaErrorStreamCaptureInvalidated", 1)


def test_r16_a_long_step_is_the_engines_affair(yard: Yard) -> None:
    yard.requests = [Request()]
    yard.look_for(9, silence=True)
    assert yard.requests[0].errors == []


def test_r16_who_may_have_been_preempted_is_not_stuck(yard: Yard) -> None:
    assert yard.numbers is not None  # narrows the type
    yard.requests = [Request()]
    yard.look_for(1, steps=1)
    yard.numbers.n_preemptions += 1
    # Work goes on: at every check the engine is busy.
    for _ in range(60):
        yard.now += 0.5
        yard.numbers.n_steps += 5
        yard.numbers.silence_ns = 1000
        yard.watchdog.check()
    assert yard.requests[0].errors == []


def test_r16_who_waits_for_blocks_that_sessions_hold_is_not_stuck(yard: Yard) -> None:
    """It was preempted, and nothing can run: the engine is idle until a session ends."""
    assert yard.numbers is not None  # narrows the type
    yard.requests = [Request()]
    yard.numbers.waiting = 1
    yard.look_for(60)
    assert yard.requests[0].errors == []


def test_a_look_that_fails_is_not_the_last_one(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([ValueError("of one request"), None, asyncio.CancelledError()])

    async def no_wait(_: float) -> None:
        pass

    def look() -> None:
        if (raised := next(looks)) is not None:
            raise raised

    monkeypatch.setattr(asyncio, "sleep", no_wait)
    monkeypatch.setattr(yard.watchdog, "check", look)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(yard.watchdog.run())
    assert next(looks, "used up") == "used up"
    assert [line["event"] for line in yard.lines()] == ["watchdog"]


def test_at_rest_it_looks_again_when_somebody_calls(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(yard.watchdog, "check", lambda: looks.append(yard.is_called))

    async def turn() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def scene() -> None:
        yard.is_called = False
        running = asyncio.create_task(yard.watchdog.run())
        await turn()
        assert looks == [False]
        yard.is_called = True
        await turn()
        assert looks == [False], "nobody told it"
        yard.watchdog.wake()
        await turn()
        running.cancel()

    asyncio.run(scene())
    assert looks == [False, True]


@pytest.mark.parametrize("numbers", [Numbers(silence_ns=1), Numbers(waiting=1), Numbers(stopped=True)])
def test_an_engine_that_is_not_at_rest_is_looked_at_whoever_calls(
    numbers: Numbers, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", note)
    yard.is_called, yard.numbers = False, numbers
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(yard.watchdog.run())
    assert pauses == [0.5]


@pytest.mark.long
def test_r16_a_place_that_is_taken_again_begins_anew(yard: Yard) -> None:
    """Observations of a request that has ended do not apply to the next one."""
    yard.requests = [Request()]
    yard.look_for(4, steps=3)
    yard.requests = []
    yard.look_for(2, steps=3)
    yard.requests = [Request()]
    yard.look_for(4, steps=3)
    assert yard.requests[0].errors == []
