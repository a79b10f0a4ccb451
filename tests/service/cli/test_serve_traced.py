"""What a server opens, connects to and starts (G9), seen from inside, as in every process of tests, and by strace.

The first sees the acts of Python, the second also those of its libraries.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service.models import demo_model_path
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.calls.wire import ask
from support.machine.command_line import FOUND_IN, clean_environment
from support.machine.traces import Act, Configured, acts_inside, acts_of_strace
from support.servers.server_process import ServerProcess, server_process

# Before it serves, it does one of each act that nobody configured.
LEAKS = """
import os, runpy, socket, subprocess, sys
open("/etc/hostname").close()
open(os.path.expanduser("~/left"), "w").close()
try:
    socket.getaddrinfo("localhost", 9)
    caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    caller.connect(("127.0.0.9", 53))
except OSError:
    pass
subprocess.run(["true"])
sys.argv = sys.argv[4:]
runpy.run_module("imp_service", run_name="__main__", alter_sys=False)
"""


def leaking(folder: Path) -> list[str]:
    """Returns command words that make a server leak."""
    path = folder / "leak.py"
    path.write_text(LEAKS)
    return [sys.executable, "-P", str(path)]


def test_g9_what_a_process_does_beyond_its_configuration_is_found(tmp_path: Path) -> None:
    """The control for the check after every test with a process."""
    found: list[str] = []
    with pytest.raises(AssertionError), server_process(tmp_path, inside=leaking(tmp_path)) as server:
        server.run_canary()
        found = server.trace_problems()
    expected = ["read /etc/hostname", f"write {tmp_path}/left", "look up localhost", "connect 127.0.0.9"]
    assert found[1:5] == [f"G9: {act}" for act in expected]  # after it read the script itself
    assert found[5].startswith("G9: start ")


def test_g9_paths_are_configured_one_by_one(tmp_path: Path) -> None:
    """A named file may be read. Only the ready file of the folder is written."""
    ready = tmp_path / "ready.json"
    configured = Configured(tmp_path, ready, ["--listen", f"unix://{tmp_path}/s", "auth.token_file=keys/tokens"])
    allowed = {"read": [ready.parent / "keys/tokens", "/proc/self/limits", FOUND_IN / "x.py"], "write": [ready]}
    forbidden = {"read": [tmp_path / "keys", "/proc2", "/etc/passwd"], "write": [tmp_path / "keys/tokens", "/tmp/x"]}
    written = tmp_path / "trace"
    for kinds, n_found in ((allowed, 0), (forbidden, 5)):
        written.write_text("".join(f'["{kind}", "{path}"]\n' for kind, paths in kinds.items() for path in paths))
        assert len(configured.problems_in(acts_inside(written))) == n_found


def strace(output: Path) -> Sequence[str]:
    """Returns words that run a command under strace, with its status. Skips if strace cannot trace."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    words = [program, "-f", "-s", "4096", "-o", str(output), "-e", "trace=open,openat,creat,connect,sendto,execve"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"strace may not look on: {tried.stderr.strip()}")
    return words


@contextlib.contextmanager
def watched_server(output: Path, *words: str, inside: Sequence[str] = (), **options: Any) -> Iterator[ServerProcess]:
    """Starts a server under strace, and stops it at the end of the block."""
    inside = [*strace(output), *inside]
    with server_process(output.parent, *words, inside=inside, is_traced=False, **options) as server:
        pid = server.wait_until_ready()["pid"]
        try:
            yield server
        finally:
            os.kill(pid, signal.SIGTERM)
            assert server.wait_for_end() == 0


def problems_seen(server: ServerProcess, output: Path) -> list[str]:
    """Returns the violations that strace saw in an ended server. The first program started is the server's own."""
    first, *acts = acts_of_strace(output, server.folder)
    assert first.kind == "start"
    return server.configured.problems_in(acts)


def test_g9_a_traced_server_keeps_to_its_configuration(tmp_path: Path) -> None:
    """The server has its own model and sockets. Requests name URLs and files that it must not fetch."""
    model = shutil.copy(demo_model_path(), tmp_path / "model.gguf")
    output = tmp_path / "strace.txt"
    words = ("-m", str(model), "--listen", f"unix://{tmp_path}/imp.sock")
    settings = ("listen.admin=127.0.0.1:0", "listen.metrics=127.0.0.1:0")
    with watched_server(output, *words, settings=settings) as server, server.inference() as stub:
        list(stub.Generate(ask("http://169.254.169.254/latest file:///etc/passwd", 4)))
        for reference in ("http://example.com/a.json", "file:///etc/passwd"):
            constraint = types_pb2.Constraint(json_schema=f'{{"$ref": "{reference}"}}')
            refused = failed(lambda constraint=constraint: list(stub.Generate(ask("a", 4, constraint=constraint))))
            assert refused.code == "INVALID_ARGUMENT"
        said = types_pb2.ChatMessage(role="user", content="/etc/shadow")
        list(stub.Generate(ask([], 4, chat=types_pb2.ChatPrompt(messages=[said]))))
    assert problems_seen(server, output) == []
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["model.gguf", "stderr.txt", "strace.txt"]


LOCAL_COMMANDS = [
    ("run", "Once", "-n", "2"),
    ("chat", "-n", "2"),
    ("inspect",),
    ("doctor",),
    ("kernels",),
    ("config", "show"),
    ("k8s",),
    ("systemd",),
    ("completion", "bash"),
    ("bench", "--help"),
    ("run", "Once", "-m", "own/model"),
    ("ls",),
    ("rm", "own/model"),
]


def _reached(acts: Sequence[Act]) -> list[str]:
    """Returns the addresses that are no sockets of the file system."""
    return [str(act.subject) for act in acts if act.kind == "connect" and "_port=" in str(act.subject)]


@pytest.mark.long
@pytest.mark.parametrize("words", LOCAL_COMMANDS, ids=" ".join)
def test_get_3_no_other_command_connects_anywhere(words: Sequence[str], tmp_path: Path) -> None:
    output = tmp_path / "strace.txt"
    command = [*strace(output), sys.executable, "-m", "imp_service", *words]
    subprocess.run(
        command, input=b"Hello!\n", capture_output=True, cwd=tmp_path, env=clean_environment(tmp_path), check=False
    )
    first, *acts = acts_of_strace(output, tmp_path)
    assert first.kind == "start"
    assert _reached(acts) == []


def test_get_3_strace_sees_a_download(tmp_path: Path) -> None:
    output = tmp_path / "strace.txt"
    environment = {**clean_environment(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:1"}
    command = [*strace(output), sys.executable, "-m", "imp_service", "pull", "own/model"]
    assert subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False).returncode == 69
    assert any("sin_port=htons(1)" in address for address in _reached(acts_of_strace(output, tmp_path)))


@pytest.mark.long
def test_g9_a_trace_shows_acts_outside_the_configuration(tmp_path: Path) -> None:
    output = tmp_path / "strace.txt"
    with watched_server(output, inside=leaking(tmp_path)) as server:
        pass
    found = problems_seen(server, output)
    assert {"G9: read /etc/hostname", "G9: read /etc/hosts", f"G9: write {tmp_path}/left"} <= set(found)
    assert [act for act in found if "127.0.0.9" in act and act.startswith("G9: connect")]
    assert [act for act in found if act.startswith("G9: start ")]
