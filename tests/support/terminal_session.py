"""Runs a command on a pseudo-terminal: sends keys and reads the output."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.command_line import clean_environment
from support.patience import HANGS_AFTER

CTRL_C = "\x03"


class TerminalSession:
    """The terminal's other side. A character that is typed reaches the process as a terminal sends it."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_until_it_waits(self) -> None:
        """Waits until the process reads: the interpreter loses a Ctrl-C that arrives just before."""
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.005)
                raise AssertionError("the process has ended")

    def read_until(self, words: str) -> str:
        """The output up to `words`; fails if they do not come."""
        shown = b""
        while words.encode() not in shown:
            ready, _, _ = select.select([self._descriptor], [], [], HANGS_AFTER)
            assert ready, f"never came: {words!r}; shown: {shown.decode(errors='replace')}"
            # A byte at a time: what comes after is for the next reader.
            shown += os.read(self._descriptor, 1)
        return shown.decode()


@contextlib.contextmanager
def terminal_session(folder: Path, *command: str) -> Iterator[TerminalSession]:
    """Kills the process at the end of the block."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        # A session of its own whose terminal this is: Ctrl-C there is a signal to it.
        ("setsid", "--ctty", *command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**clean_environment(folder), "TERM": "xterm"},
    )
    os.close(theirs)
    try:
        yield TerminalSession(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
