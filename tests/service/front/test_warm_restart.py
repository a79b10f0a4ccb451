"""A parent forks engine processes that serve at once and share its memory, and it is dropped when it must not fork."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from imp_service.cli.serve.survive import _may_fork
from imp_service.config import read_settings
from imp_service.front.supervision.engine_process import EngineProcess
from support.machine.command_line import clean_environment
from support.machine.process_numbers import ProcessNumbers
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause_loop
from support.run.release_run import repetitions
from support.servers.engine_starts import (
    children,
    complete,
    descriptors,
    engine_starts,
    in_a_loop,
    is_alive,
    shared_bytes,
    status_line,
)
from support.servers.served_models import built_in
from support.servers.server_checks import CanaryLoop
from support.servers.server_process import server_process

# The processor time until an engine process serves.
MOST_SECONDS = 0.2
# Of the resident memory of an engine process: what the parent and it have together.
MOST_TOGETHER = 1.3
# Run first in each process.
NO_MEMORY = """
import os, sys, errno
if "--parent-of" in sys.orig_argv:
    def fork():
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    os.fork = fork
"""
SECOND_THREAD = """
import sys, threading
if "--parent-of" in sys.orig_argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

# Forks are refused while there is a file.
WHILE_THERE = """
import os, errno
def refusing(fork=os.fork):
    if os.path.exists({path!r}):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = refusing
"""


def text_of(engine: EngineProcess) -> str:
    return str(complete(engine)["choices"][0]["text"])


def run_canary(address: str) -> list[str]:
    """Generates over gRPC, and compares with the tokens of the model in this process."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        canary = CanaryLoop(built_in(), channel)
        canary.stop()
        return [str(problem) for problem in canary.problems]


@in_a_loop
async def test_iso_15_a_forked_engine_process_serves_the_same_and_shares_memory(tmp_path: Path) -> None:
    async with engine_starts(tmp_path) as starts:
        engine = await starts.serve()
        parent, text = starts.parent_pid, await asyncio.to_thread(text_of, engine)
        for _ in range(repetitions(50, 3)):
            killed = engine.pid
            await starts.kill(engine)
            engine = await starts.serve()
            numbers = ProcessNumbers.of(engine.pid)
            assert numbers.cpu_seconds <= MOST_SECONDS
            assert engine.pid != killed and starts.parent_pid == parent
            assert await asyncio.to_thread(text_of, engine) == text
        assert await asyncio.to_thread(run_canary, starts.served[-1]["facts"]["grpc"][0]) == []
        (of_parent, part_of_parent), (of_engine, part_of_engine) = shared_bytes(parent), shared_bytes(engine.pid)
        assert part_of_parent + part_of_engine <= MOST_TOGETHER * max(of_parent, of_engine)
        # Two processes of the same parent draw other numbers.
        first = await asyncio.to_thread(complete, engine, temperature=2.0, max_tokens=30)
        await starts.kill(engine)
        engine = await starts.serve()
        second = await asyncio.to_thread(complete, engine, temperature=2.0, max_tokens=30)
        assert first["id"] != second["id"] and first["choices"] != second["choices"]
        assert starts.log.messages == []


@in_a_loop
async def test_iso_15_iso_16_negative_control_an_executed_process_shares_nothing(tmp_path: Path) -> None:
    """It is also what a forked one has to equal: signals, descriptors, threads."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with engine_starts(tmp_path / "one", forks=False) as executed, engine_starts(tmp_path / "two") as forked:
        plain, engine = await executed.serve(), await forked.serve()
        parent = forked.parent_pid
        for name in ("SigBlk", "SigIgn", "SigCgt", "CapEff", "Seccomp"):
            assert status_line(engine.pid, name) == status_line(plain.pid, name), name
        of_parent, of_engine = descriptors(parent), descriptors(engine.pid)
        standard = {of_parent[number] for number in ("0", "1", "2")}
        # The model's file is open until its digest is known.
        kinds = [
            {kind_of(target) for target in found.values() if not target.endswith(".gguf")}
            for found in (of_engine, descriptors(plain.pid))
        ]
        assert kinds[0] == kinds[1]
        # Of what the parent has open, the engine process has the standard streams and the model's file.
        both = set(of_parent.values()) & set(of_engine.values()) - standard
        assert {Path(path).suffix for path in both} <= {".gguf"}
        (control,) = [target for target in of_parent.values() if target not in standard and ".gguf" not in target]
        assert control.startswith("socket:")
        # Between forks it has one thread, no lock of a file, and no copy of the sockets that it passed on.
        assert ProcessNumbers.of(parent).n_threads == 1
        assert f" {parent} " not in Path("/proc/locks").read_text()
        assert status_line(engine.pid, "PPid") == status_line(plain.pid, "PPid") == str(os.getpid())
        rss, pss = shared_bytes(plain.pid)
        of_forked, part = shared_bytes(engine.pid)
        assert rss + pss > MOST_TOGETHER * rss  # two such processes fail the check of memory
        assert part < 0.8 * of_forked
        assert ProcessNumbers.of(plain.pid).cpu_seconds > MOST_SECONDS


def kind_of(target: str) -> str:
    """What a descriptor refers to, without its number."""
    return target.split(":[", maxsplit=1)[0]


def own_children(strangers: Sequence[int]) -> list[int]:
    """The children of this process but those of tests before."""
    return [pid for pid in children() if pid not in strangers]


@in_a_loop
async def test_iso_16_many_forks_leave_nothing(tmp_path: Path) -> None:
    strangers = children()
    async with engine_starts(tmp_path) as starts:
        engine = await starts.serve()
        parent = starts.parent_pid
        await starts.kill(engine)
        await starts.kill(await starts.begin())
        before, others = ProcessNumbers.of(parent), len(descriptors(os.getpid()))
        for i in range(repetitions(1000, 30)):
            engine = await starts.begin()
            # It is killed at another point of its start.
            await asyncio.wait((engine.ended,), timeout=0.002 * (i % 7))
            await starts.kill(engine)
        after = ProcessNumbers.of(parent)
        assert (after.n_descriptors, after.n_threads) == (before.n_descriptors, 1)
        assert after.resident_bytes <= before.resident_bytes + (1 << 20)
        assert own_children(strangers) == [parent] and children(parent) == []
        assert len(descriptors(os.getpid())) == others
        assert await asyncio.to_thread(text_of, await starts.serve())
        assert starts.log.messages == []


@pytest.mark.parametrize(("hook", "why"), [(NO_MEMORY, "Cannot allocate memory"), (SECOND_THREAD, "2 threads run")])
@in_a_loop
async def test_iso_11_iso_16_a_parent_that_cannot_fork_becomes_the_engine_process(
    tmp_path: Path, hook: str, why: str
) -> None:
    strangers = children()
    async with engine_starts(tmp_path, hook=hook) as starts:
        engine = await starts.serve()
        assert own_children(strangers) == [engine.pid] and starts.starter.pids == set()
        assert [why in message for message in starts.log.messages] == [True]
        text = await asyncio.to_thread(text_of, engine)
        death = await starts.kill(engine)
        assert death.signal == signal.SIGKILL
        engine = await starts.serve()  # executed: nobody is asked again for a while
        assert own_children(strangers) == [engine.pid] and len(starts.log.messages) == 1
        assert await asyncio.to_thread(text_of, engine) == text


@in_a_loop
async def test_iso_11_y26_a_while_after_a_refused_fork_another_parent_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imp_service.front.supervision.parent.FIRST_PAUSE", 0.01)
    refuses = tmp_path / "refuses"
    refuses.touch()
    async with engine_starts(tmp_path, hook=WHILE_THERE.format(path=str(refuses)), is_stand_in=True) as starts:
        for n in (1, 2):  # in vain
            await pause_loop(0.02)
            await starts.kill(await starts.begin())
            assert starts.starter.pids == set() and len(starts.log.messages) == n
        refuses.unlink()
        await pause_loop(0.05)
        await starts.kill(await starts.begin())
        forked = await starts.begin()
        assert starts.parent_pid != forked.pid and len(starts.log.messages) == 2


@in_a_loop
async def test_iso_11_a_parent_that_ends_takes_no_engine_process_with_it(tmp_path: Path) -> None:
    async with engine_starts(tmp_path) as starts:
        engine = await starts.serve()
        parent, text = starts.parent_pid, await asyncio.to_thread(text_of, engine)
        os.kill(parent, signal.SIGKILL)
        while is_alive(parent):
            await asyncio.sleep(0)
        starts.starter.check()
        assert starts.log.messages == ["parent: ended: signal 9"]
        assert await asyncio.to_thread(text_of, engine) == text
        await starts.kill(engine, signal.SIGBUS)
        engine = await starts.serve()
        assert starts.parent_pid != parent and await asyncio.to_thread(text_of, engine) == text


@in_a_loop
async def test_iso_11_a_load_that_fails_ends_as_that_of_a_server(tmp_path: Path) -> None:
    async with engine_starts(tmp_path, hook="import os; os.environ['IMP_MODEL__PATH'] = '/nowhere.gguf'") as starts:
        engine = await starts.begin()
        assert (await starts.end_of(engine)).status == 66
        assert starts.log.messages == []


@in_a_loop
async def test_iso_11_faults_drop_the_parent(tmp_path: Path) -> None:
    async with engine_starts(tmp_path, is_stand_in=True) as starts:

        async def survives(number: int, *, has_advanced: bool = False) -> bool:
            """Whether the parent of a process that this signal ends starts the next one too."""
            engine = await starts.begin()
            before = starts.starter.pids
            await starts.kill(engine, number, has_advanced=has_advanced)
            await starts.kill(await starts.begin())
            return starts.starter.pids == before

        assert await survives(signal.SIGKILL) and await survives(signal.SIGTERM)  # by others: as often as they like
        assert await survives(signal.SIGSEGV)
        assert not await survives(signal.SIGABRT)
        assert await survives(signal.SIGSEGV)  # a new parent, a new count
        assert await survives(signal.SIGILL, has_advanced=True)
        assert not await survives(signal.SIGFPE)
        assert not await survives(signal.SIGBUS)
        faults = "parent: dropped: 2 faults without progress of a caller"
        assert starts.log.messages == [faults, faults, "parent: dropped: its memory or its file may be damaged"]


@in_a_loop
async def test_iso_11_a_parent_that_does_not_fork_in_time_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_starts(tmp_path, is_stand_in=True) as starts:
        await starts.kill(await starts.begin())
        (parent,) = starts.starter.pids
        os.kill(parent, signal.SIGSTOP)
        engine = EngineProcess(starts.starter.start, lambda _: None, lambda _: None)
        assert starts.starter.is_starting and not starts.starter.is_late
        monkeypatch.setattr("imp_service.front.supervision.parent.LONGEST_FORK", 0.0)
        assert starts.starter.is_late
        await engine.end("its parent does not fork")
        death = await starts.end_of(engine)
        assert death.by_watchdog and death.signal in (signal.SIGABRT, signal.SIGKILL)
        starts.starter.died(death, has_advanced=False)
        await starts.kill(await starts.begin())
        assert starts.starter.pids != {parent}


@pytest.mark.parametrize(("kind", "forks"), [("auto", True), ("cpu", True), ("cuda", False)])
def test_iso_11_only_a_cpu_has_a_parent(kind: str, forks: bool) -> None:
    settings = read_settings(None, [f"device.kind={kind}"], variables={}).settings
    assert _may_fork(settings) is forks


def test_iso_11_iso_15_a_front_forks_again_and_leaves_nothing(tmp_path: Path) -> None:
    with server_process(tmp_path, "--survive", "--http", "127.0.0.1:0", is_traced=False) as server:
        facts = server.wait_until_ready()
        (parent,) = set(children(server.pid)) - {facts["engine_pid"]}
        os.kill(facts["engine_pid"], signal.SIGKILL)
        served = server.wait_for_lines("engine serving", 2)
        assert set(children(server.pid)) == {parent, served[1]["engine_pid"]}
        server.signal(signal.SIGHUP)
        server.wait_for_lines("reload", 1)
        os.kill(parent, signal.SIGKILL)
        os.kill(served[1]["engine_pid"], signal.SIGBUS)
        served = server.wait_for_lines("engine serving", 3)
        assert parent not in children(server.pid) and len(children(server.pid)) == 2
        server.wait_for_lines("reload", 2)  # a new process reads the settings as the one before it did
        left = children(server.pid)
        server.kill()
        give_up = time.monotonic() + HANGS_AFTER
        while any(map(is_alive, left)):
            assert time.monotonic() < give_up, left
            os.sched_yield()


def test_iso_11_a_stop_ends_a_load(tmp_path: Path) -> None:
    hook = "import signal, sys\nif '--parent-of' in sys.orig_argv: signal.pause()\n"
    (tmp_path / "sitecustomize.py").write_text(hook)
    path = os.pathsep.join([str(tmp_path), clean_environment(tmp_path)["PYTHONPATH"]])
    with server_process(
        tmp_path, "--survive", "--http", "127.0.0.1:0", is_traced=False, environment={"PYTHONPATH": path}
    ) as server:
        give_up = time.monotonic() + HANGS_AFTER
        while not children(server.pid):
            assert time.monotonic() < give_up and server.process.poll() is None
            os.sched_yield()
        (parent,) = children(server.pid)
        assert server.terminate() == 0
        assert not is_alive(parent)
