"""Engine processes that die in every way, under clients of HTTP that must lose no stream."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from soak.doomed.sitecustomize import SIGNALS, SPIN
from soak.http_streams import HttpLoad, goldens
from support.machine.command_line import clean_environment
from support.machine.lasting_port import lasting_port
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause
from support.servers.server_process import ServerProcess
from support.text.tool_templates import HERMES

DOOMED = Path(__file__).with_name("doomed")
# A call that comes while an engine process hangs is not refused: the watchdog needs 8 s, more on a busy machine.
SETTINGS = ("front.hold=120s", "kv.bytes=32MiB", "log.format=json", "log.max_lines_per_second=100000")

# The deaths of a process, and how many of a thousand are of each kind.
BY_SIGNAL = {"SIGKILL": 466, "SIGSEGV": 80, "SIGABRT": 80, "SIGBUS": 15, "SIGFPE": 25}
BY_ITSELF = {"exit": 160, "memory": 130}
# Somebody has to end it: the supervisor, after 8 s. A loop that gets half a processor counts half as long (ISO-6).
# `loop` and `deadlock` are of the main thread, `spin` is an endless loop of the thread that makes the engine's steps.
BY_HANGING = {"SIGSTOP": 6, "loop": 4, "deadlock": 6, "spin": 4}
# Of a supervised process: it and its parent; it, and the next one as soon as it exists.
OF_SEVERAL = {"parent": 12, "twice": 12}
MIXED = {**BY_SIGNAL, **BY_ITSELF, **BY_HANGING, **OF_SEVERAL}
# What the front cannot tell from a fault of the process's own. Two of them while one call is alone inside are taken for
# that call's fault (ISO-5), so each waits until every call has something new.
FAULTS = frozenset(("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", *BY_HANGING))
# So many deaths in a row may come before a stream has something new: of more than eight the front gives up (ISO-7).
MOST_AT_ONCE = 3


def mixed(n: int, kinds: Sequence[str]) -> list[str]:
    """So many deaths of these kinds, in an order that is the same each time."""
    total, found, due = sum(MIXED[kind] for kind in kinds), list[str](), dict.fromkeys(kinds, 0.0)
    for _ in range(n):
        for kind in kinds:
            due[kind] += MIXED[kind] / total
        found.append(max(due, key=lambda kind: due[kind]))
        due[found[-1]] -= 1.0
    random.Random(n).shuffle(found)
    return found


def doom(pid: int, kind: str) -> None:
    """Ends a process, or makes it hang."""
    if kind == "spin":
        assert ctypes.CDLL(None).tgkill(pid, step_thread(pid), SPIN) == 0
        return
    os.kill(pid, SIGNALS[kind] if kind in SIGNALS else signal.Signals[kind])


def step_thread(pid: int) -> int:
    """The thread of a busy server that makes the engine's steps: besides the main thread it has used the most time."""

    def used(thread: Path) -> int:
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    threads = [each for each in Path(f"/proc/{pid}/task").iterdir() if int(each.name) != pid]
    return int(max(threads, key=used).name)


def children(pid: int) -> set[int]:
    """The servers among the children of a process. A server's own children become the front's when it dies."""
    found = {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return {each for each in found if b"\0serve\0" in command_of(each)}


def command_of(pid: int) -> bytes:
    """The words of a process; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def doomed_server(folder: Path, *words: str, settings: Sequence[str] = ()) -> ServerProcess:
    """A server that can end itself."""
    folder.mkdir(exist_ok=True)
    template = folder / "chat.jinja"
    template.write_text(HERMES)
    path = os.pathsep.join([str(DOOMED), clean_environment(folder)["PYTHONPATH"]])
    settings = (*SETTINGS, f"model.overrides.chat_template={template}", *settings)
    return ServerProcess(folder, *words, settings=settings, environment={"PYTHONPATH": path}, is_traced=False)


def log_lines(text: str, event: str) -> list[dict[str, Any]]:
    """The lines of a log about this event."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return [line for line in lines if line.get("event") == event]


class HttpFleet(Protocol):
    """Servers behind one address."""

    url: str

    def strike(self, kind: str, load: HttpLoad) -> int:
        """One death, or two. Returns how many, once all serve again."""

    def report(self) -> dict[str, Any]:
        """What the log of the front says."""

    def close(self) -> None:
        """Ends everything."""


class SurvivingServer:
    """`imp serve --survive`: its front starts the engine process again."""

    kinds = tuple(MIXED)

    def __init__(self, folder: Path, *settings: str) -> None:
        self._server = doomed_server(folder, "--survive", "--http", "127.0.0.1:0", settings=settings)
        self.url = f"http://{self._server.wait_until_ready()['http'][0]}"

    @property
    def _engine(self) -> int:
        return int(json.loads(self._server.ready_file.read_text())["engine_pid"])

    def strike(self, kind: str, load: HttpLoad) -> int:
        """One death, or two. Returns how many, once the next process serves."""
        front, engine, n = self._server.pid, self._engine, 1
        parents = children(front) - {engine}
        if kind == "parent":
            for pid in (*parents, engine):
                os.kill(pid, signal.SIGKILL)
        elif kind == "twice":
            doom(engine, "SIGKILL")
            n += self._kill_next(parents | {engine})
        else:
            doom(engine, kind)
        self._until(lambda: self._engine != engine, kind)
        return n

    def report(self) -> dict[str, Any]:
        """What the log says."""
        text = self._server.stderr
        ended = log_lines(text, "engine ended")
        calls = sorted(line["calls"] for line in ended)
        return {
            "deaths": len(ended),
            "deaths_by": Counter(
                f"{line.get('signal', line.get('status'))}{' by the watchdog' if 'why' in line else ''}"
                for line in ended
            ),
            "open_calls_at_a_death": {"least": calls[0], "median": calls[len(calls) // 2]} if calls else {},
            "joined": len(log_lines(text, "resumed")),
            "parent": Counter(line["message"] for line in log_lines(text, "parent")),
            "errors": [line for line in map(str, text.splitlines()) if '"level": "error"' in line][:20],
        }

    def close(self) -> None:
        """Ends everything."""
        self._server.kill()

    def _kill_next(self, known: set[int]) -> int:
        """Kills the process that is started next. Returns how many it killed: one serves maybe before it is seen."""
        give_up = time.monotonic() + HANGS_AFTER
        while not (found := children(self._server.pid) - known):
            assert time.monotonic() < give_up, self._server.stderr[-2000:]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def _until(self, holds: Any, what: str) -> None:
        give_up = time.monotonic() + HANGS_AFTER
        while not holds():
            assert self._server.process.poll() is None, f"{what}: the front ended: {self._server.stderr[-2000:]}"
            assert time.monotonic() < give_up, f"{what}: {self._server.stderr[-2000:]}"
            pause(0.003)


class FrontedServers:
    """Servers behind `imp front`. Each is started again where it was."""

    kinds = (*BY_SIGNAL, *BY_ITSELF, *BY_HANGING)

    def __init__(self, folder: Path, n: int) -> None:
        self._ends = contextlib.ExitStack()
        self._rng = random.Random(n)
        self._folder = folder
        self._addresses = [f"127.0.0.1:{lasting_port()}" for _ in range(n)]
        try:
            self._servers = [self._start(i) for i in range(n)]
            self._log = folder / "front.txt"
            self._front = self._start_front()
            self._ends.callback(self._front.wait)
            self._ends.callback(self._front.kill)
            self._wait_for_servers()
            self.url = f"http://{self._serving()}"
        except BaseException:
            self.close()
            raise

    def strike(self, kind: str, load: HttpLoad) -> int:
        """One death. Returns 1 once the process is started again."""
        self._wait_for_servers()
        # Of three servers in a row that end before it has a token, a call ends (ISO-2).
        load.wait_for_events(load.events(), all)
        i = self._rng.randrange(len(self._servers))
        server, before = self._servers[i], load.events()
        doom(server.pid, kind)
        if kind in BY_HANGING:
            # The streams are at the other one. Here a probe of Kubernetes would end it.
            load.wait_for_events(before, all)
            load.wait_for_events(load.events(), all)
            server.process.kill()
        server.wait_for_end()
        self._servers[i] = self._start(i)
        return 1

    def report(self) -> dict[str, Any]:
        """What the log of the front says."""
        text = self._log.read_text()
        return {
            "joined": len(log_lines(text, "resumed")),
            "errors": [line for line in text.splitlines() if '"level": "error"' in line][:20],
        }

    def close(self) -> None:
        """Ends everything."""
        self._ends.close()
        for server in self._servers:
            server.kill()

    def _start(self, i: int) -> ServerProcess:
        return doomed_server(self._folder / str(i), "--http", self._addresses[i])

    def _start_front(self) -> subprocess.Popen[bytes]:
        settings = [word for setting in SETTINGS if not setting.startswith("kv.") for word in ("--set", setting)]
        words = ("front", "--http", "127.0.0.1:0", "--to", *self._addresses, *settings)
        with self._log.open("wb") as log:
            command = [sys.executable, "-P", "-m", "imp_service", *words]
            return subprocess.Popen(command, env=clean_environment(self._folder), stderr=log)

    def _serving(self) -> str:
        give_up = time.monotonic() + HANGS_AFTER
        while not (lines := log_lines(self._log.read_text(), "front serving")):
            assert self._front.poll() is None and time.monotonic() < give_up, self._log.read_text()
            pause(0.005)
        return str(lines[0]["http"][0])

    def _wait_for_servers(self) -> None:
        for server in self._servers:
            server.wait_until_ready()


@contextmanager
def http_fleet(folder: Path, n_servers: int) -> Iterator[SurvivingServer | FrontedServers]:
    """Yields one supervised server, or several behind a front."""
    it = SurvivingServer(folder) if n_servers == 1 else FrontedServers(folder, n_servers)
    try:
        yield it
    finally:
        it.close()


def run_http_chaos(
    folder: Path, kinds: Iterable[str], *, n_servers: int = 1, n_clients: int = 16, seconds: float = math.inf
) -> dict[str, Any]:
    """Engine processes die in these ways, one after the other, until a stream is lost, or for so long.

    Returns the verdict as data.
    """
    rng, n_done, began = random.Random(n_servers), Counter[str](), time.monotonic()
    with http_fleet(folder, n_servers) as it:
        load = HttpLoad(it.url, goldens(it.url), n_clients)
        n_kills = 0
        try:
            n_at_once = MOST_AT_ONCE
            for kind in takewhile(lambda _: time.monotonic() < began + seconds, kinds):
                n_at_once = _wait_for_turn(load, rng, n_at_once, is_fault=kind in FAULTS)
                n_kills += it.strike(kind, load)
                n_done[kind] += 1
        except AssertionError as error:
            load.problems.append(str(error))
        finally:
            problems = load.stop()
        return {
            "ok": not problems,
            "problems": problems[:20],
            "n_problems": len(problems),
            "seconds": round(time.monotonic() - began, 1),
            "kills": n_kills,
            "faults": dict(n_done),
            "streams": load.n_streams,
            "longest_wait": round(max(state.longest_wait for state in load.states), 2),
            **it.report(),
        }


def kinds_of(n_servers: int) -> Sequence[str]:
    """The deaths that so many servers can have."""
    return (SurvivingServer if n_servers == 1 else FrontedServers).kinds


def _wait_for_turn(load: HttpLoad, rng: random.Random, n_at_once: int, *, is_fault: bool) -> int:
    """Waits for the next death: some come as soon as a process serves. Returns how many did so, one after the other."""
    before = load.events()
    if is_fault:
        load.wait_for_events(before, all)
    elif n_at_once < MOST_AT_ONCE and rng.random() < 0.3:
        pause(rng.uniform(0.0, 0.02))
        return n_at_once + 1
    else:
        load.wait_for_events(before, any)
    pause(rng.uniform(0.0, 0.2))
    assert not load.problems, "a stream was lost"
    return 0
