"""Starts engine processes as a front does, without the front: the parent is a real one, of the built-in model."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from imp_service.cli.serve.front_link import PARENT_OPTION, Inherited
from imp_service.front.supervision.death import Death
from imp_service.front.supervision.engine_process import EngineProcess
from imp_service.front.supervision.parent import PR_SET_CHILD_SUBREAPER, Starter
from imp_service.telemetry.log import Log
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers import stand_in_parent

WORDS = ("--listen", "127.0.0.1:0", "--set", "device.threads=2")


class Warnings:
    """A log that keeps the messages of warnings."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def warning(self, event: str, *, message: str = "", **fields: object) -> None:
        """Keeps it."""
        self.messages.append(f"{event}: {message}")


class EngineStarts:
    """On the thread of a running loop."""

    def __init__(self, *, forks: bool = True, is_stand_in: bool = False) -> None:
        """Without `forks`, processes are executed. `is_stand_in`: engine processes only sleep."""
        self.log = Warnings()
        self.served: list[Mapping[str, Any]] = []
        self._engines: list[EngineProcess] = []
        self.starter = Starter(
            lambda listening, link: _serve(*Inherited(listening, link).words, *WORDS),
            cast(Log, self.log),
            (_stand_in if is_stand_in else _parent) if forks else None,
        )

    @property
    def parent_pid(self) -> int:
        """The number of the parent."""
        (pid,) = self.starter.pids
        return pid

    async def begin(self) -> EngineProcess:
        """Starts an engine process, and returns once it exists."""
        engine = EngineProcess(self.starter.start, self._serves, lambda _: None)
        self._engines.append(engine)
        async with asyncio.timeout(HANGS_AFTER):
            while self.starter.is_starting and not engine.ended.done():
                engine.check()
                await asyncio.wait((engine.ended,), timeout=0.002)
        return engine

    async def serve(self) -> EngineProcess:
        """Starts an engine process, and returns once it serves."""
        engine = await self.begin()
        async with asyncio.timeout(HANGS_AFTER):
            while not engine.has_served:
                engine.check()
                assert not engine.ended.done(), f"{engine.ended.result()}, {self.log.messages}"
                await asyncio.wait((engine.ended,), timeout=0.002)
        return engine

    async def kill(self, engine: EngineProcess, number: int = signal.SIGKILL, *, has_advanced: bool = False) -> Death:
        """Ends an engine process by a signal, and tells the starter."""
        engine.signal(number)
        death = await self.end_of(engine)
        self.starter.died(death, has_advanced=has_advanced)
        return death

    async def end_of(self, engine: EngineProcess) -> Death:
        """How the process ended."""
        async with asyncio.timeout(HANGS_AFTER):
            while not engine.ended.done():
                engine.check()
                await asyncio.wait((engine.ended,), timeout=0.002)
        return engine.ended.result()

    async def close(self) -> None:
        """Ends all that it has started."""
        for engine in self._engines:
            engine.signal(signal.SIGKILL)
            await self.end_of(engine)
        self.starter.close()

    def _serves(self, message: Mapping[str, Any]) -> None:
        self.served.append(message)


@contextlib.asynccontextmanager
async def engine_starts(folder: Path, *, hook: str = "", **how: bool) -> AsyncIterator[EngineStarts]:
    """Yields a starter, and ends everything that it started. `hook` is Python that each process runs first."""
    with _environment(folder, hook), _subreaper():
        starts = EngineStarts(**how)
        try:
            yield starts
        finally:
            await starts.close()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own, on the main thread."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


def _serve(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "imp_service", "serve", *words]


def _parent(control: int) -> list[str]:
    return _serve(PARENT_OPTION, str(control), *WORDS)


def _stand_in(control: int) -> list[str]:
    return [sys.executable, str(stand_in_parent.__file__), str(control)]


@contextlib.contextmanager
def _environment(folder: Path, hook: str) -> Iterator[None]:
    """Processes started within the block get the clean environment, and run `hook` first."""
    given = clean_environment(folder)
    if hook:
        (folder / "sitecustomize.py").write_text(hook)
        given["PYTHONPATH"] = os.pathsep.join([str(folder), given["PYTHONPATH"]])
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """A Starter makes this process one; it ceases to be one after the block."""
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children(pid: int | None = None) -> list[int]:
    """The children of this process, or of another one."""
    folder = Path(f"/proc/{pid or os.getpid()}/task")
    return [int(word) for task in folder.iterdir() for word in (task / "children").read_text().split()]


def complete(engine: EngineProcess, prompt: str = "Once upon a time", **fields: Any) -> dict[str, Any]:
    """Asks an engine process for a completion over its socket. Blocks."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(HANGS_AFTER)
    connection.sock.connect(engine.path)
    body = json.dumps({"prompt": prompt, "max_tokens": 8, "temperature": 0, **fields})
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return dict(answer)


def descriptors(pid: int) -> dict[str, str]:
    """What the descriptors of a process refer to, by its number."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, such as that of the folder itself
            found[entry.name] = str(entry.readlink())
    return found


def status_line(pid: int, name: str) -> str:
    """A line of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{name}:"))


def shared_bytes(pid: int) -> tuple[int, int]:
    """The resident bytes of a process, and its proportional share of them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found: dict[str, int] = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return found["Rss"], found["Pss"]


def is_alive(pid: int) -> bool:
    """Whether it runs. A process that has ended and was not waited for does not."""
    try:
        return status_line(pid, "State")[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
