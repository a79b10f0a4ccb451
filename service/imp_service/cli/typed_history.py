"""The history of what is typed in conversations: a private file that keeps the newest messages."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from imp_service.cli.atomic_file import write_atomically
from imp_service.cli.failure import warning_line
from imp_service.cli.terminal import variable

# A conversation reads the whole file when it begins.
MAX_BYTES = 1 << 20
# What a file that has become too large keeps: half, so that it is not written again after each message.
KEPT_BYTES = MAX_BYTES // 2
# The line before a message has its time. Each line of a message begins with another character.
_HEADING = b"\n# "


def history_path() -> Path:
    """In the folder for state of the XDG base directories."""
    folder = variable("XDG_STATE_HOME")
    return (Path(folder) if folder.startswith("/") else Path.home() / ".local" / "state") / "imp" / "chat_history"


def open_history() -> History:
    """The history of earlier conversations. If its file cannot be used, a warning says so, and nothing is kept."""
    path = history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        os.fchmod(file, 0o600)
        os.close(file)
        _drop_oldest(path)
    except OSError as error:
        print(warning_line(f"history: {path}: {error.strerror}; --no-history keeps none"), file=sys.stderr)
        return InMemoryHistory()
    return _BoundedHistory(path)


class _BoundedHistory(FileHistory):
    """Stores typed messages if possible; a full disk does not end a conversation."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path

    def store_string(self, string: str) -> None:
        # A text of more bytes, pasted perhaps, is kept for this conversation only.
        if len(string.encode("utf-8", "replace")) > KEPT_BYTES // 2:
            return
        with suppress(OSError):
            super().store_string(string.encode("utf-8", "replace").decode())
            _drop_oldest(self._path)


def _drop_oldest(path: Path) -> None:
    """Removes the oldest messages of a file that is too large."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= MAX_BYTES:
            return
        file.seek(-KEPT_BYTES, os.SEEK_END)
        newest = file.read()
    begin = newest.find(_HEADING)
    kept = newest[begin:] if begin >= 0 else b""
    write_atomically(path, kept.decode("utf-8", "replace"), mode=0o600)
