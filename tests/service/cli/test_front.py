"""imp front: its refusals, and a front and a server as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause
from support.servers.server_process import server_process


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--http", "0"), "no server to relay to, expected --to ADDRESS"),
        (("--to", "127.0.0.1:9", "--set", "listen.http=[]"), "no address to answer on"),
        (("--to", "fd:3"), "--to: found fd:3"),
        (("--to", "nonsense"), "--to: found nonsense"),
        (("--to", "127.0.0.1:9", "--http", "fd:70000"), "fd:70000"),
    ],
)
def test_a_front_without_a_server_or_an_address_is_refused(
    call: Callable[..., tuple[int, str, str]], words: tuple[str, ...], said: str
) -> None:
    status, _, stderr = call("front", *words)
    assert status in (64, 73, 78) and said in stderr


@contextmanager
def front_process(folder: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields the address of an `imp front`, and its process."""
    command = [sys.executable, "-P", "-m", "imp_service", "front", "--http", "127.0.0.1:0", *words]
    with subprocess.Popen(command, env=clean_environment(folder), stderr=subprocess.PIPE) as front:
        try:
            assert front.stderr is not None  # narrows
            lines = map(json.loads, front.stderr)
            yield next(line["http"][0] for line in lines if line["event"] == "front serving"), front
        finally:
            front.kill()


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=HANGS_AFTER) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_c06_a_front_before_a_server_is_ready_when_that_is_and_drains(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with front_process(tmp_path, "--to", f"unix://{path}") as (address, front):
        assert (status_of(f"http://{address}/health"), status_of(f"http://{address}/health/live")) == (503, 200)
        with server_process(tmp_path, "--listen", "127.0.0.1:0", "--http", f"unix://{path}", is_traced=False) as server:
            server.wait_until_ready()
            give_up = time.monotonic() + HANGS_AFTER
            while status_of(f"http://{address}/health") != 200:
                assert time.monotonic() < give_up
                pause()
            with urllib.request.urlopen(f"http://{address}/v1/models", timeout=HANGS_AFTER) as reply:
                models: dict[str, Any] = json.load(reply)
            assert [model["id"] for model in models["data"]] == ["imp-demo"]
        front.terminate()
        assert front.wait(HANGS_AFTER) == 0
