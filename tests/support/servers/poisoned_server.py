"""An `imp serve` that some requests end, as soon as it has said that it has their call; its parent starts it again.

As a program: `poisoned_server.py DEATHS WORD...`. Each death is a byte of the file DEATHS.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A stop string, or a token of a step, that ends the server.
POISON_STOP, POISON_TOKEN = "poison", 13


class PoisonedServer:
    """The parent, and the server of the time. The port stays the same."""

    def __init__(self, folder: Path, address: str) -> None:
        from support.machine.command_line import clean_environment

        self.address = address
        self._deaths = folder / "deaths"
        self._deaths.touch()
        words = (
            "serve",
            "--listen",
            address,
            "--set",
            "device.threads=1",
            "--set",
            "kv.bytes=8MiB",
            "--set",
            "log.level=error",
        )
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(self._deaths), *words],
            env=clean_environment(folder),
            cwd=folder,
            start_new_session=True,
        )

    def deaths(self, n: int) -> int:
        """How often a request has ended the server, once it is at least so often."""
        from support.run.pauses import pause

        while self._deaths.stat().st_size < n:
            assert self._process.poll() is None
            pause()
        return self._deaths.stat().st_size

    def wait(self) -> None:
        """Waits until the server listens."""
        from support.run.pauses import pause

        host, _, port = self.address.rpartition(":")
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                return
            assert self._process.poll() is None
            pause()

    def close(self) -> None:
        """Ends both."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def poisoned_server(folder: Path, address: str) -> Iterator[PoisonedServer]:
    """Runs such a server within the block."""
    server = PoisonedServer(folder, address)
    try:
        server.wait()
        yield server
    finally:
        server.close()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _poison() -> None:
    from imp_service.rpc.imp_v1.decode_step import DecodeStep
    from imp_service.rpc.imp_v1.generate import Generate

    generate, decode = Generate.stream, DecodeStep.answer

    async def stream(self: Generate, request: Any, call: Any) -> None:
        if POISON_STOP in request.stop.strings:
            _die()
        await generate(self, request, call)

    async def answer(self: DecodeStep, request: Any, call: Any) -> Any:
        if any(POISON_TOKEN in step.token_ids for step in request.steps):
            _die()
        return await decode(self, request, call)

    Generate.stream, DecodeStep.answer = stream, answer  # type: ignore[method-assign]


def main(deaths: str, *words: str) -> None:
    """Runs the server again and again."""
    from imp_service.cli.shell import main as run

    _poison()
    while True:
        child = os.fork()
        if not child:
            sys.exit(run(list(words)))
        os.waitpid(child, 0)
        with Path(deaths).open("ab") as file:
            file.write(b"x")


if __name__ == "__main__":
    main(*sys.argv[1:])
