"""Python loads this module first in a traced process. It writes a line for each open, connection, lookup and child.

It only records; support/machine/traces.py judges.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_NETWORK = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_CHILDREN = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "pty.spawn")
_TRACED = frozenset(("open", *_CHANGES, *_NETWORK, *_CHILDREN))
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _kind_and_subject(event: str, arguments: tuple[Any, ...]) -> tuple[str, Any] | None:
    first = arguments[0] if arguments else None
    if event == "open" or event in _CHANGES:
        if isinstance(first, int):
            return None  # a descriptor: its file was opened before
        changes = event != "open" or arguments[2] & _WRITES
        path = os.fsdecode(first)
        whole = path if path.startswith("/") else f"{Path.cwd()}/{path}"
        return ("write" if changes else "read"), os.path.normpath(whole)
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        return "connect", address if isinstance(address, str) else str(address[0])
    if event in _NETWORK:
        return "look up", None if first is None else os.fsdecode(first)
    return "start", repr(arguments)


def _trace(path: str) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # If stderr is closed, its number must stay free.
    descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(opened)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _TRACED:
            return
        # An exception here would make the traced operation fail: a disk may be full, a directory gone.
        with contextlib.suppress(OSError):
            if found := _kind_and_subject(event, arguments):
                # In a line of its own, even after the last line of a process that was killed while it wrote.
                os.write(descriptor, f"\n{json.dumps(found)}\n".encode())

    sys.addaudithook(note)


if "TRACED_TO" in os.environ:
    _trace(os.environ["TRACED_TO"])
