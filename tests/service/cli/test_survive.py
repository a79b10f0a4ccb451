"""imp serve --survive as processes: a front, and an engine process that it starts again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.machine.command_line import error_lines
from support.machine.process_numbers import stat_fields
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause
from support.run.release_run import repetitions
from support.servers.server_process import ServerProcess, start_to_its_end

GREETING = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
# Fields of /proc/PID/stat after the name.
STATE, SESSION = 0, 3


class Survivor:
    """A front with its engine process, in a session of their own."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.facts = server.wait_until_ready()
        (self.address,) = self.facts["http"]

    @property
    def engine_pid(self) -> int:
        """The engine process that has served last."""
        return int(json.loads(self.server.ready_file.read_text())["engine_pid"])

    def status(self, path: str) -> int:
        """The status of a GET."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=HANGS_AFTER) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    def chat(self) -> str:
        """The text of an answer."""
        request = urllib.request.Request(
            f"http://{self.address}/v1/chat/completions",
            json.dumps(GREETING).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=HANGS_AFTER) as reply:
            text: str = json.load(reply)["choices"][0]["message"]["content"]
            return text

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until it holds."""
        give_up = time.monotonic() + HANGS_AFTER
        while not holds():
            assert time.monotonic() < give_up, f"{what}: {self.server.stderr}"
            pause()


def members(session: int) -> list[int]:
    """Returns the processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = stat_fields(folder)
                if int(fields[SESSION]) == session and fields[STATE] not in "ZX":
                    found.append(int(folder.name))
    return found


def until_none_is_left(session: int) -> None:
    """Waits until every process of a session has ended: a second, on a machine that has time."""
    give_up = time.monotonic() + HANGS_AFTER
    while left := members(session):
        assert time.monotonic() < give_up, f"left behind: {left}"
        pause()


@contextlib.contextmanager
def survivor(folder: Path, *words: str, settings: tuple[str, ...] = (), **variables: str) -> Iterator[Survivor]:
    """Yields a front whose engine serves; at the end nothing of it is left."""
    folder.mkdir(exist_ok=True)
    server = ServerProcess(
        folder,
        *("--survive", "--http", "0", *words),
        settings=settings,
        environment=variables,
        inside=("setsid",),
        is_traced=False,
    )
    try:
        yield Survivor(server)
    finally:
        server.kill()
        until_none_is_left(server.pid)


def test_iso_7_iso_8_a_killed_engine_is_started_again_behind_the_same_address(tmp_path: Path) -> None:
    with survivor(tmp_path) as it:
        assert it.facts["pid"] == it.server.pid != it.facts["engine_pid"] == it.engine_pid
        text = it.chat()
        first = it.engine_pid
        os.kill(first, signal.SIGKILL)
        assert it.chat() == text
        it.until(lambda: it.engine_pid != first, "the ready file names the new process")
        (line,) = it.server.wait_for_lines("engine ended", 1)
        assert (line["level"], line["signal"], line["restart"]) == ("warning", "SIGKILL", 1)
        assert it.server.terminate() == 0
        assert not it.server.ready_file.exists()
        assert error_lines(it.server.stderr) == []


def test_iso_7_ctrl_c_signals_both_and_drains_once(tmp_path: Path) -> None:
    with survivor(tmp_path) as it:
        for pid in (it.engine_pid, it.server.pid, it.engine_pid):
            os.kill(pid, signal.SIGINT)
        assert it.server.wait_for_end() == 0
        names = [line["name"] for line in it.server.log_lines("signal")]
        assert sorted(names) == ["SIGINT", "SIGTERM"]  # the front's, and what it sent the engine


def test_iso_7_a_service_manager_that_signals_every_process_starts_one_drain(tmp_path: Path) -> None:
    with survivor(tmp_path, settings=("drain.delay=1h",)) as it:
        engine = it.engine_pid
        os.kill(engine, signal.SIGTERM)
        it.server.signal(signal.SIGTERM)
        it.server.wait_for_lines("signal", 2)
        os.kill(engine, signal.SIGTERM)
        ended = time.monotonic() + 1.0
        while time.monotonic() < ended:
            assert engine in members(it.server.pid)
            pause()


@pytest.mark.long
def test_iso_8_a_second_signal_ends_both_at_once(tmp_path: Path) -> None:
    with survivor(tmp_path, settings=("drain.delay=1h",)) as it:
        it.server.signal(signal.SIGTERM)
        it.server.wait_for_lines("draining", 1)
        it.server.signal(signal.SIGTERM)
        assert it.server.wait_for_end() == 128 + signal.SIGTERM
        until_none_is_left(it.server.pid)


def test_iso_7_lif_18_a_reload_is_passed_on(tmp_path: Path) -> None:
    conf = tmp_path / "imp.conf"
    conf.write_text("")
    with survivor(tmp_path, "--config", str(conf)) as it:
        conf.write_text("[features]\nlogits = false\n[scheduler]\nmax_running = 9\n")
        it.server.signal(signal.SIGHUP)
        done, restart = it.server.wait_for_lines("reload", 2)
        assert (done["changed"], restart["keys"]) == (["features.logits"], ["scheduler.max_running"])


def test_c06_health_says_that_the_engine_is_away_and_live_speaks_of_the_front(tmp_path: Path) -> None:
    with survivor(tmp_path) as it:
        it.until(lambda: it.status("/health") == 200, "health is good")
        assert it.status("/health/live") == 200
        os.kill(it.engine_pid, signal.SIGSTOP)
        it.until(lambda: it.status("/health") == 503, "health fails")
        assert it.status("/health/live") == 200
        with contextlib.suppress(ProcessLookupError):
            os.kill(it.engine_pid, signal.SIGCONT)
        it.until(lambda: it.status("/health") == 200, "health is good again")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("-m", "none.gguf"), 66, "MODEL_MISSING"),
        (("--set", "tls.key=x"), 78, "CONFIG_INVALID"),
        (("--http", "off"), 64, "HTTP is off"),
        (("--set", "model.sha256=" + "0" * 64), 65, "WEIGHTS_CORRUPT"),
    ],
)
def test_iso_7_c04_a_start_that_cannot_be_ends_with_its_status_and_one_line(
    tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    http = () if "--http" in words else ("--http", "0")
    ran = start_to_its_end(tmp_path, "--survive", *http, *words)
    assert ran.returncode == status, ran.stderr
    (line,) = error_lines(ran.stderr)
    assert said in line


Act = Callable[[Survivor], Any]


def _kill(number: int, *, is_front: bool) -> Act:
    def act(it: Survivor) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(it.server.pid if is_front else it.engine_pid, number)

    return act


# The front is not waited for between acts, so that they meet starts, ends and drains.
ACTS: dict[str, Act] = {
    **{f"engine {signal.Signals(n).name}": _kill(n, is_front=False) for n in (9, 11, 15, 18, 19)},
    **{f"front {signal.Signals(n).name}": _kill(n, is_front=True) for n in (15, 18, 19)},
    "pause": lambda _: pause(0.3),
}


def test_iso_8_c05_c13_nothing_is_left_behind_whoever_dies_first(tmp_path: Path) -> None:
    for n in range(repetitions(100, 2)):
        chosen = random.Random(f"orders {n}").choices(list(ACTS), k=4)
        with survivor(tmp_path / f"{n}", "--listen", f"unix://{tmp_path}/{n}.sock") as it:
            for name in chosen:
                ACTS[name](it)
            os.kill(it.server.pid, signal.SIGKILL)
            it.server.process.wait(HANGS_AFTER)
            until_none_is_left(it.server.pid)


def test_iso_8_c05_an_engine_that_is_stopped_ends_with_its_front_and_takes_its_socket_along(tmp_path: Path) -> None:
    path = tmp_path / "imp.sock"
    with survivor(tmp_path, "--listen", f"unix://{path}") as it:
        assert path.is_socket()
        os.kill(it.engine_pid, signal.SIGSTOP)
        it.server.kill()
        until_none_is_left(it.server.pid)
        assert not path.exists()


@pytest.mark.long
def test_iso_8_c05_a_front_that_is_stopped_for_a_while_goes_on(tmp_path: Path) -> None:
    with survivor(tmp_path) as it:
        text, engine = it.chat(), it.engine_pid
        for pid in (it.server.pid, engine):
            os.kill(pid, signal.SIGSTOP)
        pause(9.0)  # longer than the silence that ends an engine
        for pid in (engine, it.server.pid):
            os.kill(pid, signal.SIGCONT)
        assert it.chat() == text
        assert it.server.log_lines("engine ended") == [] and it.engine_pid == engine


def test_iso_7_the_engine_has_the_environment_and_the_words_of_the_front(tmp_path: Path) -> None:
    words, settings = ("--api-key-env", "SECRET_OF_TEST"), ("model.name=mine",)
    with survivor(tmp_path, *words, settings=settings, SECRET_OF_TEST="sk-secret") as it:
        assert it.status("/v1/models") == 401
        command = Path(f"/proc/{it.engine_pid}/cmdline").read_bytes().split(b"\0")
        assert b"model.name=mine" in command and b"sk-secret" not in b" ".join(command)
        variables = Path(f"/proc/{it.engine_pid}/environ").read_bytes().split(b"\0")
        assert b"SECRET_OF_TEST=sk-secret" in variables
        assert it.facts["model"] == "mine" and "sk-secret" not in it.server.stderr


def test_iso_7_a_front_has_no_model(tmp_path: Path) -> None:
    """A front imports nothing that makes or reads a model, and maps no weights."""
    with survivor(tmp_path) as it:
        maps = Path(f"/proc/{it.server.pid}/maps").read_text()
        assert ".gguf" not in maps and "numpy" not in maps and "grpc" not in maps
        assert "grpc" in Path(f"/proc/{it.engine_pid}/maps").read_text()
