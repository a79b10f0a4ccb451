"""imp top next to a running call: it shows the call, and Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.command_line import clean_environment
from support.patience import HANGS_AFTER
from support.server_process import server_process

# No token ends a text, so it does not finish before a person interrupts it.
ENDLESS = (
    *("-c", "16K", "--set", "model.overrides.untrained_context=true"),
    *("--set", "model.overrides.eos_token_ids=[]"),
)


@contextlib.contextmanager
def endless_call(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yields imp call in the middle of a text."""
    command = [
        sys.executable,
        "-m",
        "imp_service",
        "call",
        "generate",
        "Once",
        "--target",
        address,
        "--max-tokens",
        "16000",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=clean_environment(folder)
    )
    with process:
        try:
            assert process.stdout
            assert len(process.stdout.read(1)) == 1
            yield process
        finally:
            process.kill()


def test_top_shows_what_runs_and_ctrl_c_ends_it(call, tmp_path):
    with (
        server_process(tmp_path, *ENDLESS, settings=("listen.admin=127.0.0.1:0",)) as server,
        endless_call(server.address, tmp_path) as process,
    ):
        admin = server.wait_until_ready()["admin"]
        status, out, _ = call("top", "--once", "--json", "--target", server.address, "--admin", admin)
        load, request = (json.loads(line) for line in out.splitlines())
        assert (status, load["running"]) == (0, 1)
        assert (request["running"], request["prompt_tokens"]) == (True, 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS_AFTER)
        assert (process.returncode, err) == (130, b"")
