"""The systemd unit: systemd accepts it, a server stays within its limits, and `imp systemd` fills it in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from imp_service.cli.serve import notifier
from imp_service.config.server_settings import DrainSettings
from imp_service.deploy.unit import directive, hidden_folders
from imp_service.models import demo_model_path
from support.calls.wire import ask
from support.servers.server_process import server_process

ROOT = Path(__file__).resolve().parents[3]
UNIT = (ROOT / "conf" / "systemd" / "imp.service").read_text()
# The scale of `systemd-analyze security`: 0 is safe, 10 is unsafe.
MOST_EXPOSURE = 2.0
_NAME_OF_CALL = re.compile(r"^\d+ +(\w+)\(|^\d+ +<\.\.\. (\w+) resumed>", re.MULTILINE)


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


def with_program(unit: str, program: str = sys.executable) -> str:
    """Returns the shipped unit with a program that exists on this machine."""
    return unit.replace("/opt/imp/bin/imp", program)


def written(folder: Path, unit: str) -> str:
    path = folder / "imp.service"
    path.write_text(unit)
    return str(path)


def problems(folder: Path, unit: str) -> str:
    """Returns systemd's complaints about a unit."""
    checked = analyze("verify", written(folder, unit))
    # Only of this unit: systemd also reads the machine's own.
    found = [line for line in checked.stderr.splitlines() if "imp.service" in line]
    return "\n".join(found) or ("" if checked.returncode == 0 else checked.stderr)


def exposure(folder: Path, unit: str) -> float:
    told = analyze("security", "--offline=true", written(folder, unit)).stdout
    (found,) = re.findall(r"Overall exposure level for imp\.service: ([\d.]+)", told)
    return float(found)


@cache
def allowed_calls() -> frozenset[str]:
    """Returns the system calls that the unit's filters allow."""
    groups: dict[str, set[str]] = {}
    for head, lines in re.findall(r"^(@\S+)\n((?:    .*\n)*)", analyze("syscall-filter").stdout, re.MULTILINE):
        groups[head] = {line.strip() for line in lines.splitlines() if not line.strip().startswith("#")}

    def calls(name: str) -> set[str]:
        return set().union(*(calls(each) if each.startswith("@") else {each} for each in groups[name]))

    allowed: set[str] = set()
    for words in re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.MULTILINE):
        named = set().union(*(calls(name) for name in words.removeprefix("~").split()))
        allowed = allowed - named if words.startswith("~") else allowed | named
    return frozenset(allowed)


def test_pkg_4_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert problems(tmp_path, with_program(UNIT)) == ""
    assert "Unknown key 'ProtectClok'" in problems(tmp_path, with_program(UNIT).replace("ProtectClock", "ProtectClok"))
    assert "not executable" in problems(tmp_path, with_program(UNIT, "/no/such/imp"))


def test_pkg_4_the_unit_exposes_little(tmp_path: Path) -> None:
    assert exposure(tmp_path, with_program(UNIT)) <= MOST_EXPOSURE
    assert exposure(tmp_path, with_program(UNIT).replace("DynamicUser=yes", "DynamicUser=no")) > 0
    bare = "\n".join(line for line in with_program(UNIT).splitlines() if not re.match("Protect|Private|Restrict", line))
    assert exposure(tmp_path, bare) > MOST_EXPOSURE


def test_pkg_4_the_times_of_the_unit_are_those_of_the_defaults() -> None:
    drain = DrainSettings()
    assert directive(UNIT, "TimeoutStopSec") == f"{(drain.delay + drain.grace).total_seconds() + 15:.0f}s"
    assert (directive(UNIT, "Type"), directive(UNIT, "NotifyAccess")) == ("notify", "main")
    assert {notifier.READY, notifier.STOPPING, notifier.ALIVE} == {"READY=1", "STOPPING=1", "WATCHDOG=1"}


@pytest.mark.long
def test_pkg_4_a_server_makes_only_calls_that_the_unit_allows(tmp_path: Path) -> None:
    """The trace covers the start, a request and the end of a drain. No memory is both writable and executable."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    seen = tmp_path / "strace.txt"
    if subprocess.run([strace, "-o", str(seen), "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace may not look on: ptrace is refused")
    allowed = allowed_calls()
    assert {"openat", "futex", "mmap", "sched_setaffinity"} <= allowed and "mount" not in allowed
    inside = [strace, "-f", "-o", str(seen)]
    words = ("--http", "127.0.0.1:0")
    with server_process(tmp_path, *words, inside=inside, is_traced=False) as server, server.inference() as stub:
        pid = server.wait_until_ready()["pid"]
        list(stub.Generate(ask("Once upon a time", 8)))
        os.kill(pid, signal.SIGTERM)
        assert server.wait_for_end() == 0
    lines = seen.read_text(errors="replace")
    made = {first or second for first, second in _NAME_OF_CALL.findall(lines)}
    assert len(made) > 40 and "accept4" in made
    assert sorted(made - allowed) == []
    # The uses that MemoryDenyWriteExecute refuses.
    run = [line for line in lines.splitlines() if "PROT_EXEC" in line]
    assert run and [line for line in run if "PROT_WRITE" in line or "mprotect" in line] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [(), ("drain.grace=2m", "drain.delay=10s"), ('listen.grpc=["unix:///run/imp/imp.sock"]',)],
    ids=["defaults", "drain", "quotes"],
)
def test_pkg_4_imp_systemd_prints_a_unit_for_a_model(call, tmp_path: Path, settings: tuple[str, ...]) -> None:
    model = tmp_path / "50% of $HOME.gguf"
    shutil.copy(demo_model_path(), model)
    words = [word for setting in settings for word in ("--set", setting)]
    status, unit, err = call("systemd", "-m", str(model), "-c", "512", *words)
    assert (status, err) == (0, "")
    assert problems(tmp_path, unit) == "" and exposure(tmp_path, unit) <= MOST_EXPOSURE
    command = shlex.split(directive(unit, "ExecStart").replace("%%", "%").replace("$$", "$"))
    kv = command[-1].removeprefix("kv.bytes=")
    assert command[1:] == ["serve", "-m", str(model), "-c", "512", *words, "--set", f"kv.bytes={kv}"]
    status, planned, _ = call("inspect", *command[2:], "--json")
    assert status == 0 and f'"total_bytes": {directive(unit, "MemoryMax")}' in planned
    assert directive(unit, "TimeoutStopSec") == ("145s" if "drain.grace=2m" in settings else "45s")
    bound = directive(unit, "BindReadOnlyPaths").replace("%%", "%")
    assert str(tmp_path) in shlex.split(bound)


def test_pkg_4_paths_that_the_unit_hides_are_bound(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_text("")
    (tmp_path / "model").mkdir()
    link = tmp_path / "model" / "model.gguf"
    link.symlink_to("../blobs/1")
    assert hidden_folders([link]) == [tmp_path / "blobs", tmp_path / "model"]
    assert hidden_folders([link, tmp_path]) == [tmp_path]
    assert hidden_folders([Path("/usr/bin/true"), Path("/opt/imp")]) == []


def test_pkg_4_a_relative_path_is_a_warning(call) -> None:
    Path("tokens").write_text(f"{'0' * 64} generate a\n")
    status, unit, err = call("systemd", "--set", "auth.token_file=tokens")
    warning = "imp: warning: auth.token_file = tokens: a relative path, but the service starts in /\n"
    assert (status, err) == (0, warning)
    assert "--set auth.token_file=tokens" in directive(unit, "ExecStart")


def test_pkg_4_a_model_that_does_not_fit_has_no_unit(call) -> None:
    status, out, err = call("systemd", "--set", "kv.bytes=900TiB")
    assert (status != 0, out) == (True, "") and "kv.bytes" in err
