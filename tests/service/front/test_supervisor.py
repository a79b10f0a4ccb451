"""The supervisor with real processes, which are stand-ins for an engine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from imp_service.config.machine import n_killed_for_memory
from imp_service.front.supervision import engine_process, parent, pulse, restarts, supervisor
from imp_service.front.supervision.advances import MOST_STREAMS, Advances
from support.run.pauses import pause, pause_loop
from support.servers.engine_starts import children
from support.servers.supervised import Supervised, supervised

QUICK = 0.001
SERVES = "serve,wait"


@pytest.fixture
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pauses between restarts; their lengths are tested with a clock of the test."""
    monkeypatch.setattr(restarts, "FIRST_DELAY", QUICK)


@pytest.fixture
def quick_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a tenth of each time of the watch."""
    monkeypatch.setattr(pulse, "LONGEST_SILENCE", 0.7)
    monkeypatch.setattr(pulse, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.1)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@pytest.mark.parametrize("status", [64, 65, 66, 69, 73, 74, 77, 78])
def test_iso_7_c04_a_first_start_that_no_restart_helps_is_the_fronts_end(status: int) -> None:
    async def scene() -> None:
        async with supervised(f"exit={status}") as it:
            assert await it.status() == status
            assert it.n_starts == 1 and it.front.told == ["started", "died"]
            assert await it.lines("engine ended", 0) == []  # the process has said why

    run(scene())


ENDS = ["exit=71", "exit=75", "exit=0", "serve,exit=1", "kill=11", "serve,kill=9", "serve,exit=65"]


@pytest.mark.parametrize("end", ENDS)
def test_iso_7_c04_nine_deaths_without_a_token_end_the_front(quick_restarts: None, end: str) -> None:
    async def scene() -> None:
        async with supervised(end) as it:
            assert await it.status() == 70
            assert it.n_starts == 9 and it.front.told.count("give up") == 1
            assert [line["restart"] for line in await it.lines("engine ended", 9)] == list(range(1, 10))
            assert len(await it.lines("engine lost", 1)) == 1

    run(scene())


def test_iso_7_c04_a_process_that_fails_at_its_second_start_and_then_at_every_second_one(quick_restarts: None) -> None:
    """A front that has served keeps trying, even with a status that would end a first start."""
    plans = ["serve,exit=1", "exit=65"] * 3 + [SERVES]

    async def scene() -> None:
        async with supervised(*plans) as it:
            await it.serving(4)
            assert it.n_starts == len(plans)
            assert [line["status"] for line in await it.lines("engine ended", 6)] == [1, 65] * 3

    run(scene())


FURTHER = {
    "a stream gets further": [f"serve,told=a:{n},kill=9" for n in range(1, 13)],
    "one of two streams gets further": [f"serve,told=a:30,told=b:{n},kill=9" for n in range(1, 13)],
    "each answer is complete": ["serve,answered,kill=9"] * 12,
    "a request is asked again after its answer": [
        *["serve,told=a:40,answered,kill=9"] * 2,
        *(f"serve,told=a:{n},kill=9" for n in range(1, 11)),
    ],
}


@pytest.mark.parametrize("lives", FURTHER.values(), ids=FURTHER)
def test_iso_7_a_server_whose_callers_get_further_is_never_given_up(quick_restarts: None, lives: list[str]) -> None:
    async def scene() -> None:
        async with supervised(*lives, SERVES) as it:
            await it.serving(13)
            assert "give up" not in it.front.told and len(await it.lines("engine ended", 12)) == 12

    run(scene())


def test_iso_7_what_a_process_reports_just_before_its_end_counts() -> None:
    async def scene() -> None:
        async with supervised("told=a:1,exit=1") as it:
            await it.until(lambda: it.supervisor._engine is not None, "started")
            engine = it.supervisor._engine
            assert engine is not None  # narrows
            os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)  # the loop does not see its report meanwhile
            engine.check()
            assert engine.ended.done() and it.supervisor._advances.are_new()

    run(scene())


NO_FURTHER = {
    "dies at the same token": ["serve,told=a:3,kill=9"],
    "falls back and dies at the same token": ["serve,kill=9", "serve,told=a:2,kill=9", "serve,told=a:3,kill=9"]
    + ["serve,kill=9", "serve,told=a:2,kill=9", "serve,told=a:3,kill=9"] * 4,
    "two die at the same token": ["serve,told=a:3,told=b:5,kill=9"],
}


@pytest.mark.parametrize("lives", NO_FURTHER.values(), ids=NO_FURTHER)
def test_iso_7_c04_a_request_that_ends_each_process_at_the_same_token_ends_the_front(
    quick_restarts: None, lives: list[str]
) -> None:
    async def scene() -> None:
        async with supervised(*lives) as it:
            assert await it.status() == 70
            assert it.n_starts <= 11

    run(scene())


def test_iso_7_a_supervisor_knows_the_latest_requests_of_many() -> None:
    advances = Advances()
    for n in range(MOST_STREAMS + 1):
        advances.take({"stream": str(n), "told": 5})
    assert (advances.are_new(), advances.are_new()) == (True, False)
    advances.take({"stream": "1", "told": 5})
    assert not advances.are_new()
    advances.take({"stream": "0", "told": 5})  # forgotten
    assert advances.are_new()


def test_iso_7_a_death_is_one_line_with_its_cause_its_number_and_the_calls_that_go_on(quick_restarts: None) -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            for n, number in enumerate((signal.SIGKILL, signal.SIGSEGV, signal.SIGRTMIN), 1):
                pid = await it.serving(n)
                it.front.n_open = n
                os.kill(pid, number)
            await it.serving(4)
            lines = await it.lines("engine ended", 3)
            found = [(line["signal"], line["restart"], line["calls"]) for line in lines]
            assert found == [("SIGKILL", 1, 1), ("SIGSEGV", 2, 2), ("SIGRTMIN", 3, 3)]
            assert it.front.faults == [False, True, False]

    run(scene())


class KilledForMemory:
    """A counter file of the kernel for processes that are killed for memory, and the front that reads it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = root / "sys/fs/cgroup/memory.events"
        self._file.parent.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/\n")
        self.write(3)
        monkeypatch.setattr(engine_process, "n_killed_for_memory", lambda: n_killed_for_memory(root))

    def write(self, n: int) -> None:
        """The kernel has killed so many."""
        self._file.write_text(f"low 0\noom 9\noom_kill {n}\n")


def test_iso_5_c11_a_kill_for_memory_is_the_processs_own_fault_and_that_of_an_operator_is_not(
    quick_restarts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = KilledForMemory(tmp_path, monkeypatch)

    async def scene() -> None:
        async with supervised(SERVES) as it:
            os.kill(await it.serving(1), signal.SIGKILL)
            second = await it.serving(2)
            counter.write(4)
            os.kill(second, signal.SIGKILL)
            os.kill(await it.serving(3), signal.SIGKILL)
            fourth = await it.serving(4)
            counter.write(5)
            os.kill(fourth, signal.SIGTERM)  # another process was killed for memory
            await it.serving(5)
            lines = await it.lines("engine ended", 4)
            assert [line.get("why") for line in lines] == [None, "the kernel killed it for memory", None, None]
            assert it.front.faults == [False, True, False, False]
            assert it.front.deaths == {"other": 3, "memory": 1}

    run(scene())


def test_iso_5_c11_only_a_kill_for_memory_in_the_last_seconds_counts(
    quick_restarts: None, quick_pulse: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have killed another process, long before somebody kills this one."""
    counter = KilledForMemory(tmp_path, monkeypatch)

    async def scene() -> None:
        async with supervised(SERVES) as it:
            for n, n_seconds in enumerate((30, 4), 1):  # of which the watch makes tenths
                pid = await it.serving(n)
                counter.write(3 + n)
                await pause_loop(n_seconds / 10)
                os.kill(pid, signal.SIGKILL)
            await it.serving(3)
            assert it.front.faults == [False, True]

    run(scene())


def test_iso_8_a_dead_child_of_the_fronts_own_does_not_keep_orphans_behind_it() -> None:
    own, *orphans = [os.posix_spawn(sys.executable, [sys.executable, "-V"], {}) for _ in range(3)]
    for pid in (own, *orphans):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    engine_process.reap_orphans({own})
    left = children()
    os.waitpid(own, 0)
    assert own in left and set(orphans).isdisjoint(left)


def test_iso_13_c10_a_process_that_loses_its_gpu_is_started_again_as_by_its_own_fault(quick_restarts: None) -> None:
    """A server ends with status 70 when its GPU is lost."""

    async def scene() -> None:
        async with supervised("serve,exit=70", SERVES) as it:
            await it.serving(2)
            assert [line["status"] for line in await it.lines("engine ended", 1)] == [70]
            assert it.front.faults == [True]

    run(scene())


async def _ended_after(it: Supervised, pid: int) -> float:
    """The seconds from now until the front has seen the process end."""
    begin = time.monotonic()
    await it.until(lambda: bool(it.front.faults), f"{pid} ends")
    return time.monotonic() - begin


def test_iso_6_c02_a_stopped_process_is_ended_and_another_one_serves(quick_restarts: None, quick_pulse: None) -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            pid = await it.serving(1)
            await pause_loop(0.5)  # it answers
            os.kill(pid, signal.SIGSTOP)
            assert await _ended_after(it, pid) >= 0.5
            assert it.front.faults == [True]
            await it.serving(2)
            (line,) = await it.lines("engine ended", 1)
            # A stopped process does not see SIGABRT.
            assert (line["signal"], line["why"]) == ("SIGKILL", "no answer to /health/live for 0.7 s")
            assert it.front.deaths == {"hang": 1}

    run(scene())


@pytest.mark.long
def test_iso_6_c02_the_times_are_those_that_the_contract_has() -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            pid = await it.serving(1)
            await pause_loop(1.5)
            os.kill(pid, signal.SIGSTOP)
            assert await _ended_after(it, pid) >= 5.0
            await it.serving(2)

    run(scene())


@pytest.mark.parametrize(("plan", "why"), [("stuck,serve,wait", "its engine makes no step")])
def test_iso_6_c02_a_stuck_engine_is_ended(quick_restarts: None, quick_pulse: None, plan: str, why: str) -> None:
    async def scene() -> None:
        async with supervised(plan, SERVES) as it:
            await it.serving(2)
            (line,) = await it.lines("engine ended", 1)
            assert (line["signal"], line["why"]) == ("SIGABRT", why)

    run(scene())


@pytest.mark.long
def test_iso_6_a_process_that_runs_a_twentieth_of_the_time_is_not_ended() -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            pid = await it.serving(1)
            end = time.monotonic() + 12.0
            while time.monotonic() < end:
                os.kill(pid, signal.SIGSTOP)
                await pause_loop(0.95)
                os.kill(pid, signal.SIGCONT)
                await pause_loop(0.05)
            assert it.front.faults == []

    run(scene())


def test_iso_6_c05_a_front_that_was_stopped_does_not_take_its_own_sleep_for_a_hang(quick_pulse: None) -> None:
    """A front that does not run cannot ask. The loop is held here, which its clock sees as SIGSTOP."""

    async def scene() -> None:
        async with supervised(SERVES) as it:
            await it.serving(1)
            await pause_loop(0.3)
            for _ in range(3):
                pause(1.5)
                await pause_loop(0.3)
            assert it.front.faults == []

    run(scene())


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_y26_a_refused_process_is_tried_again_and_the_cause_is_in_the_log(quick_restarts: None, number: int) -> None:
    n_refused = 0
    start = subprocess.Popen

    def refuse(*arguments: Any, **options: Any) -> Any:
        nonlocal n_refused
        n_refused += 1
        if n_refused <= 12:
            raise OSError(number, os.strerror(number))
        return start(*arguments, **options)

    async def scene() -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with mock.patch.object(parent.subprocess, "Popen", refuse):
            async with supervised(SERVES) as it:
                await it.serving(1)
                lines = await it.lines("engine refused", 12)
                assert [line["message"] for line in lines] == [f"no process: {os.strerror(number)}"] * 12
                assert it.front.told == ["started"]
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    run(scene())


def test_c13_killed_again_as_soon_as_it_is_started(quick_restarts: None) -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            for n in (1, 2, 3):
                await it.until(lambda n=n: it.n_starts >= n and bool(it.supervisor._engine), "started")  # type: ignore[misc]
                engine = it.supervisor._engine
                assert engine is not None  # narrows
                with contextlib.suppress(ProcessLookupError):
                    os.kill(engine.pid, signal.SIGKILL)
                await it.until(lambda n=n: len(it.front.faults) >= n, "died")  # type: ignore[misc]
            await it.serving(1)

    run(scene())


def test_c13_a_drain_ends_with_the_process_and_nothing_is_started_again() -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            await it.serving(1)
            it.front.n_open = 1
            it.supervisor.stop()
            assert await it.status() == 0
            assert it.front.told == ["started", "leave", "died"] and it.n_starts == 1

    run(scene())


def test_c13_a_process_killed_during_a_drain_is_started_again_for_the_open_calls(quick_restarts: None) -> None:
    async def scene() -> None:
        async with supervised(SERVES) as it:
            pid = await it.serving(1)
            it.front.n_open = 2
            os.kill(pid, signal.SIGSTOP)  # so that SIGTERM does not end it
            it.supervisor.stop()
            os.kill(pid, signal.SIGKILL)
            await it.serving(2)
            it.front.n_open = 0
            assert await it.status() == 0
            assert [line["signal"] for line in await it.lines("engine ended", 1)] == ["SIGKILL"]
            assert it.front.faults == [False, False]

    run(scene())


def test_c13_a_drain_ends_in_time_whatever_the_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MARGIN_SECONDS", 0.2)

    async def scene() -> None:
        async with supervised(SERVES, drain_seconds=0.1) as it:
            pid = await it.serving(1)
            it.front.n_open = 1
            os.kill(pid, signal.SIGSTOP)
            it.supervisor.stop()
            assert await it.status() == 0

    run(scene())


def test_c13_a_stop_during_a_start_and_during_a_pause_ends_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(plan: str) -> None:
        async with supervised(plan) as it:
            await it.until(lambda: it.n_starts > 0, "started")
            if plan != "wait":
                await it.until(lambda: bool(it.front.faults), "died")
            it.supervisor.stop()
            assert await it.status() == 0

    monkeypatch.setattr(restarts, "FIRST_DELAY", 1000.0)
    run(scene("wait"))
    monkeypatch.setattr(restarts, "_delay", lambda n: 1000.0)
    run(scene("exit=1"))


def test_lif_18_a_reload_reaches_the_process_once_it_serves() -> None:
    async def scene() -> None:
        async with supervised("sleep=0.3,serve,wait") as it:
            await it.until(lambda: it.n_starts > 0, "started")
            it.supervisor.reload()
            await it.until(lambda: "reloaded" in it.errors, "reloaded")
            it.supervisor.reload()
            await it.until(lambda: it.errors.count("reloaded") == 2, "reloaded again")
            assert it.front.faults == []

    run(scene())
