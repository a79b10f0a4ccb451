"""Secrets in files: read again when the files change, also through a replaced symbolic link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from imp_service.config.errors import ConfigError
from imp_service.telemetry.log import Log

T = TypeVar("T")
# The contract promises that a change takes effect within 5 s.
CHECK_SECONDS = 1.0

Signature = tuple[tuple[int, ...] | None, ...]


class ReloadedFiles(Generic[T]):
    """A value that is read from files; the last good one is kept. Any thread may use it."""

    def __init__(self, event: str, paths: Sequence[Path], read: Callable[[], T], log: Log) -> None:
        """Reads the files now. Raises the ConfigError of `read`."""
        self._event = event
        self._paths = tuple(paths)
        self._read = read
        self._log = log
        self._lock = threading.Lock()
        self._seen = signature(self._paths)
        self.value = read()

    @property
    def key(self) -> str:
        """The key of imp.conf that names the file; for several files, their section."""
        return self._event

    def prepare(self) -> Callable[[], None]:
        """Reads the files even if they have not changed. Returns a function that applies the value."""
        seen = signature(self._paths)
        value = self._read()

        return lambda: self._hold(seen, value)

    def check_files(self) -> None:
        """Reads the files again if they have changed. If they are not valid, logs that and keeps the value."""
        seen = signature(self._paths)
        if seen == self._seen:
            return
        try:
            value = self._read()
        except ConfigError as error:
            self._hold(seen, self.value)
            self._log.error(self._event, message=f"{error.message}; what was read before stays in force")
        else:
            self._hold(seen, value)
            self._log.info(self._event, message="read again")

    def _hold(self, seen: Signature, value: T) -> None:
        # Under one lock: otherwise the signature of one read could be stored with the value of another.
        with self._lock:
            self._seen, self.value = seen, value


class FileWatcher:
    """Calls check_files() of each value repeatedly until stop(), on a thread, since a file system may block."""

    def __init__(self, checks: Sequence[Callable[[], None]]) -> None:
        self._checks = tuple(checks)
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name="imp-secrets", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread soon. Does not wait for it."""
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            for check in self._checks:
                check()


def signature(paths: Sequence[Path]) -> Signature:
    """Changes if a file is written or replaced."""
    return tuple(_signature(path) for path in paths)


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
