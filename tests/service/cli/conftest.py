"""Fixtures of the tests of commands: they run imp as a user does, or within this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imp_service.cli.serve.signals import HARMLESS, STOPS
from imp_service.cli.shell import main
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def imp(tmp_path: Path) -> Run:
    """Runs `imp` in a process of its own, in an empty directory."""

    def run(*words: str | bytes, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "imp_service", *words]
        environment = {**clean_environment(tmp_path), **variables}
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=HANGS_AFTER, check=False, cwd=tmp_path, env=environment
        )

    return run


@pytest.fixture
def as_they_were() -> Iterator[None]:
    """Restores the signal handlers that a command replaces, since its process does not end here."""
    before = {number: signal.getsignal(number) for number in (*STOPS, *HARMLESS)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], as_they_were: None
) -> Callable[..., tuple]:
    """Runs a command in this process, in an empty directory. Returns its status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("IMP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        return status, *capfd.readouterr()

    return run
