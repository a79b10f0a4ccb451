"""What secrets' files held when they were last good: read again when they change, also by a swapped symbolic link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from imp_service.config.errors import ConfigError
from imp_service.telemetry.log import Log

T = TypeVar("T")
# A change takes effect within 5 s, reading and all.
LOOK_SECONDS = 1.0

Signature = tuple[tuple[int, ...] | None, ...]


class ReloadedFiles(Generic[T]):
    """One value made of some files. Any thread may take `value`, look() and prepare()."""

    def __init__(self, event: str, paths: Sequence[Path], read: Callable[[], T], log: Log) -> None:
        """Reads at once; raises the ConfigError of `read`."""
        self._event = event
        self._paths = tuple(paths)
        self._read = read
        self._log = log
        self._lock = threading.Lock()
        self._seen = signature(self._paths)
        self.value = read()

    @property
    def key(self) -> str:
        """The key of imp.conf that names them; of several, their section."""
        return self._event

    def prepare(self) -> Callable[[], None]:
        """Reads the files even if they have not changed. Returns a function that puts the value into force."""
        seen = signature(self._paths)
        value = self._read()

        return lambda: self._hold(seen, value)

    def look(self) -> None:
        """Reads the files again where they have changed. What cannot be used is told, and changes nothing."""
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


class Looking:
    """Calls every look() again and again on a thread of its own, where a file system may make it wait; until stop()."""

    def __init__(self, looks: Sequence[Callable[[], None]]) -> None:
        self._looks = tuple(looks)
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name="imp-secrets", daemon=True).start()

    def stop(self) -> None:
        """Soon; nothing waits for it."""
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            for look in self._looks:
                look()


def signature(paths: Sequence[Path]) -> Signature:
    """Differs where a file was written or another one stands in its place."""
    return tuple(_signature(path) for path in paths)


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
