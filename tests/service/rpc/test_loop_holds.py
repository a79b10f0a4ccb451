"""The watch over the event loop in every test of a server: it reports long steps of imp's code, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from imp_service.pb import inference_pb2_grpc
from support.run import loop_holds, taken_time
from support.run.loop_holds import CONTENDED, DECODE_SECONDS, MOST_SECONDS, Hold, take_holds
from support.run.taken_time import Taken, TakenTime
from support.servers.loop_thread import loop_thread
from support.servers.served import ask, serve


def burn(seconds: float = 1.5 * MOST_SECONDS) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def wait() -> None:
    threading.Event().wait(1.5 * MOST_SECONDS)


class Machine:
    """Stands in for the kernel's counters."""

    def __init__(self) -> None:
        self.taken = Taken(0.0, 0.0)

    def begin(self) -> None:
        pass

    def since(self) -> Taken:
        return self.taken


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that takes nothing from the loop, unless the test says so."""
    made = Machine()
    monkeypatch.setattr(loop_holds, "_taken", [made])
    return made


def holds_of(callback: Callable[[], None]) -> list[Hold]:
    """Returns the slow steps of a callback on the loop."""
    thread, done = loop_thread(), threading.Event()
    take_holds()
    thread.loop.call_soon_threadsafe(callback)
    thread.loop.call_soon_threadsafe(done.set)
    assert done.wait(60)
    return take_holds()


def test_o03_rpc_30_a_step_of_imp_that_holds_the_loop_is_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(burn, "__module__", "imp_service.somewhere")
    (hold,) = holds_of(burn)
    assert (hold.step, hold.test, hold.is_stolen) == ("imp_service.somewhere.burn", request.node.nodeid, False)
    assert hold.seconds >= 1.5 * MOST_SECONDS and hold.times == hold.seconds / MOST_SECONDS


def test_o03_a_step_of_a_test_or_one_that_waits_for_an_event_is_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holds_of(burn) == []
    monkeypatch.setattr(wait, "__module__", "imp_service.somewhere")
    assert holds_of(wait) == []


def test_o03_time_that_the_host_stole_is_not_the_step_s(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn, "__module__", "imp_service.somewhere")
    machine.taken = Taken(waited=0.0, stolen=10.0)
    assert holds_of(burn) == []
    machine.taken = Taken(waited=0.0, stolen=MOST_SECONDS)
    (hold,) = holds_of(burn_long(monkeypatch, 3 * MOST_SECONDS))
    assert hold.is_stolen and hold.times == (hold.seconds - MOST_SECONDS) / MOST_SECONDS


def test_o03_a_step_that_mostly_waited_for_a_processor_has_a_higher_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.taken = Taken(waited=10.0, stolen=0.0)
    monkeypatch.setattr(burn, "__module__", "imp_service.somewhere")
    assert holds_of(burn) == []
    (hold,) = holds_of(burn_long(monkeypatch, 1.5 * CONTENDED * MOST_SECONDS))
    assert hold.times == hold.seconds / (CONTENDED * MOST_SECONDS)


def burn_long(patch: pytest.MonkeyPatch, seconds: float) -> Callable[[], None]:
    """Returns a function of imp that burns this much processor time."""

    def burn_so_long() -> None:
        burn(seconds)

    patch.setattr(burn_so_long, "__module__", "imp_service.elsewhere")
    return burn_so_long


@pytest.mark.long
def test_o03_a_call_that_holds_the_loop_is_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as served:
        take_holds()
        monkeypatch.setattr("imp_service.rpc.imp_v1.generate.refuse_late", lambda call: burn(1.5 * DECODE_SECONDS))
        stub = inference_pb2_grpc.InferenceServiceStub(served.channel())
        for _ in range(2):
            list(stub.Generate(ask([1], 1)))
        monkeypatch.undo()
        served.wait_for_calls()
        found = take_holds()
    assert found and all("Generate" in each.step for each in found)


# Prints a line, then keeps one processor busy.
BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


def test_hon_1_waiting_for_a_processor_is_seen() -> None:
    """Another process wants the only processor that the thread may use."""
    (processor, *_) = os.sched_getaffinity(0)

    def measure() -> Taken:
        os.sched_setaffinity(0, {processor})  # of this thread
        with closing(TakenTime()) as taken:
            taken.begin()
            burn()
            return taken.since()

    with subprocess.Popen([sys.executable, "-c", BUSY, str(processor)], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None  # narrows
        busy.stdout.readline()
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(measure).result().waited > 0
        busy.kill()


def test_hon_1_what_the_host_steals_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts whole ticks, so up to one more may have been stolen than it says."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 100 9 10\ncpu0 0\n")
    monkeypatch.setattr(taken_time, "FILES", (str(tmp_path / "none"), str(stat)))
    with closing(TakenTime()) as taken:
        taken.begin()
        assert taken.since() == Taken(0.0, 0.0)
        stat.write_text("cpu  1 2 3 4 5 6 7 103 9 10\ncpu0 0\n")
        assert taken.since() == Taken(0.0, 4 / os.sysconf("SC_CLK_TCK"))
