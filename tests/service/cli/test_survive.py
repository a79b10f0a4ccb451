"""imp serve --survive as processes: a front, and an engine process that it starts again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import imp_service
from imp_service.api.replies import Chunk
from support.machine.command_line import clean_environment, error_lines
from support.machine.process_numbers import stat_fields
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause
from support.run.release_run import repetitions
from support.servers.engine_starts import children
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
        (self._parent,) = {*children(server.pid)} - {self.engine_pid}

    @property
    def engine_pid(self) -> int:
        """The engine process that has served last."""
        return int(json.loads(self.server.ready_file.read_text())["engine_pid"])

    @property
    def parent_pid(self) -> int:
        """The oldest child of the front but the engine process; that of the last look if there is none."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            self._parent = min({*children(self.server.pid)} - {self.engine_pid}, default=self._parent)
        return self._parent

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


# An engine process that sends a reply every 10 ms, so that a test can end it in the middle.
SLOWLY = """
import asyncio
from contextlib import suppress
from imp_service.serving.generation_stream import GenerationStream
next_reply = GenerationStream.next_reply
async def slowly(self):
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    return await next_reply(self)
GenerationStream.next_reply = slowly
"""


@contextlib.contextmanager
def slow_survivor(folder: Path, address: str) -> Iterator[Survivor]:
    """Yields a front whose engine process answers slowly, at an address of gRPC that each of them has in turn."""
    (folder / "sitecustomize.py").write_text(SLOWLY)
    path = os.pathsep.join([str(folder), clean_environment(folder)["PYTHONPATH"]])
    with survivor(folder, "--listen", address, settings=("chunk.max_tokens=1",), PYTHONPATH=path) as it:
        yield it


def kill_engine(it: Survivor) -> None:
    """Kills the engine process that serves, once there is another one than the last time."""
    pid = it.engine_pid
    os.kill(pid, signal.SIGKILL)
    it.until(lambda: it.server.process.poll() is not None or it.engine_pid != pid, "another engine process serves")


def test_iso_7_clients_of_imp_v1_alone_keep_a_front_as_long_as_they_get_further(tmp_path: Path) -> None:
    """One stream, which twelve deaths interrupt. No answer is complete before the last one."""
    address = f"unix://{tmp_path}/imp.sock"
    with slow_survivor(tmp_path, address) as it, imp_service.connect(address) as model:
        n_tokens, n_deaths = 0, 0
        stream = model.generate("Once upon a time", max_tokens=200, temperature=0, ignore_eos=True)
        for piece in stream:
            n_tokens += len(piece.token_ids) if isinstance(piece, Chunk) else 0
            if n_tokens >= 15 * (n_deaths + 1) and n_deaths < 12:
                kill_engine(it)
                n_deaths += 1
        assert stream.result().usage.output_tokens == 200
        assert [line["restart"] for line in it.server.wait_for_lines("engine ended", 12)] == list(range(1, 13))
        again = model.generate("Once upon a time", max_tokens=200, temperature=0, ignore_eos=True).result()
        assert again.token_ids == stream.result().token_ids


@pytest.mark.long
def test_iso_7_c04_a_client_of_imp_v1_that_begins_anew_after_each_death_does_not_keep_a_front(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/imp.sock"
    with slow_survivor(tmp_path, address) as it:
        while it.server.process.poll() is None:
            failures = imp_service.Error, FileNotFoundError  # the front has ended
            with contextlib.suppress(*failures), imp_service.connect(address, resume=False) as model:
                stream = iter(model.generate("Once upon a time", max_tokens=200, temperature=0, ignore_eos=True))
                for _ in range(5):
                    next(stream)
                kill_engine(it)
        assert it.server.wait_for_end() == 70
        assert len(it.server.log_lines("engine ended")) == 9


def test_iso_7_ctrl_c_signals_both_and_drains_once(tmp_path: Path) -> None:
    with survivor(tmp_path) as it:
        for pid in (it.engine_pid, it.server.pid, it.engine_pid):
            os.kill(pid, signal.SIGINT)
        assert it.server.wait_for_end() == 0
        assert [line["name"] for line in it.server.log_lines("signal")] == ["SIGINT"]
        assert len(it.server.log_lines("draining")) == 1


def test_iso_7_a_service_manager_that_signals_every_process_starts_one_drain(tmp_path: Path) -> None:
    with survivor(tmp_path, settings=("drain.delay=1h",)) as it:
        engine = it.engine_pid
        os.kill(engine, signal.SIGTERM)
        it.server.signal(signal.SIGTERM)
        it.server.wait_for_lines("signal", 1)
        it.server.wait_for_lines("draining", 1)
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


def test_iso_7_w18_the_front_ends_at_once_if_an_address_of_its_engine_process_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = start_to_its_end(tmp_path, "--survive", "--http", "0", "--listen", address)
    assert ran.returncode == 75, ran.stderr
    (line,) = error_lines(ran.stderr)
    assert "ADDRESS_IN_USE" in line and address in line


Act = Callable[[Survivor], Any]


def _kill(number: int, pid_of: Callable[[Survivor], int]) -> Act:
    def act(it: Survivor) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(pid_of(it), number)

    return act


PROCESSES: dict[str, Callable[[Survivor], int]] = {
    "front": lambda it: it.server.pid,
    "parent": lambda it: it.parent_pid,
    "engine": lambda it: it.engine_pid,
}
# The front is not waited for between acts, so that they meet starts, ends and drains.
ACTS: dict[str, Act] = {
    f"{name} {number.name}": _kill(number, PROCESSES[name])
    for name in PROCESSES
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGCONT, signal.SIGSTOP)
} | {"pause": lambda _: pause(0.3)}


def test_iso_8_c05_c13_nothing_is_left_behind_whoever_dies_first(tmp_path: Path) -> None:
    """At last the front is killed: alone, or in a row with the others, who need not be there any more."""
    rows = [row for n in (1, 2, 3) for row in permutations(PROCESSES, n) if "front" in row]
    for n in range(repetitions(100, 3)):
        rng = random.Random(f"orders {n}")
        chosen = [*rng.choices(list(ACTS), k=rng.randrange(5)), *(f"{name} SIGKILL" for name in rows[n % len(rows)])]
        with survivor(tmp_path / f"{n}", "--listen", f"unix://{tmp_path}/{n}.sock") as it:
            for name in chosen:
                ACTS[name](it)
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


def test_iso_18_the_engine_process_knows_the_clients_of_its_front(tmp_path: Path) -> None:
    """Each of them is a peer in the log and, without a tenant, a caller of its own."""
    with survivor(tmp_path) as it:
        peers = []
        for _ in range(2):
            client = http.client.HTTPConnection(it.address, timeout=HANGS_AFTER)
            client.connect()
            host, port = client.sock.getsockname()
            peers.append(f"ipv4:{host}:{port}")
            client.request("GET", "/v1/models", headers={"imp-peer": "ipv4:10.9.9.9:1"})
            assert client.getresponse().read()
            client.close()
        assert [line["peer"] for line in it.server.wait_for_calls("/v1/models", 2)] == peers


def test_frt_7_the_series_of_both_processes_are_on_one_page(tmp_path: Path) -> None:
    with survivor(tmp_path, settings=("http.public_metrics=true",)) as it:
        os.kill(it.engine_pid, signal.SIGKILL)
        it.chat()
        with urllib.request.urlopen(f"http://{it.address}/metrics", timeout=HANGS_AFTER) as reply:
            page = reply.read().decode()
        samples = [each for family in text_string_to_metric_families(page) for each in family.samples]
        found = {(each.name, *each.labels.values()): each.value for each in samples}
        assert found["imp_front_deaths_total", "other"] == 1 and found["imp_front_upstreams", "ready"] == 1
        assert found["imp_requests_started_total",] == 1  # since the engine process was started again


def test_iso_7_a_front_has_no_model(tmp_path: Path) -> None:
    """A front imports nothing that makes or reads a model, and maps no weights."""
    with survivor(tmp_path) as it:
        maps = Path(f"/proc/{it.server.pid}/maps").read_text()
        assert ".gguf" not in maps and "numpy" not in maps and "grpc" not in maps
        assert "grpc" in Path(f"/proc/{it.engine_pid}/maps").read_text()
