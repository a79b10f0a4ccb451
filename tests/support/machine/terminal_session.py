"""Runs a command on a pseudo-terminal: sends keys and reads the output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER

CTRL_C = "\x03"
PROMPT = ">\x08\x1b[2C"  # the prompt as the line editor of a conversation shows it on an empty line


class TerminalSession:
    """The other side of the terminal. Typed characters reach the process as a terminal sends them."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.descriptor = descriptor
        self.process = process

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def resize(self, n_rows: int, n_columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", n_rows, n_columns, 0, 0))

    def wait_until_it_waits(self) -> None:
        """Waits until the process reads, because the interpreter loses a Ctrl-C that arrives just before."""
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.005)
                raise AssertionError("the process has ended")

    def read_until(self, words: str) -> str:
        """Returns the output up to `words`; fails if they do not appear."""
        return self.read_bytes_until(words.encode()).decode()

    def read_bytes_until(self, words: bytes) -> bytes:
        shown = b""
        while words not in shown:
            ready, _, _ = select.select([self.descriptor], [], [], HANGS_AFTER)
            assert ready, f"never came: {words!r}; shown: {shown.decode(errors='replace')}"
            # Reads single bytes, so that what follows stays for the next reader.
            shown += os.read(self.descriptor, 1)
        return shown


@contextlib.contextmanager
def terminal_session(folder: Path, *command: str, **variables: str) -> Iterator[TerminalSession]:
    """Starts the command and kills it at the end of the block. `variables` are added to its environment."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        # The process leads a session with this terminal, so that Ctrl-C there sends it a signal.
        ("setsid", "--ctty", *command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**clean_environment(folder), "TERM": "xterm", **variables},
    )
    os.close(theirs)
    try:
        yield TerminalSession(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
