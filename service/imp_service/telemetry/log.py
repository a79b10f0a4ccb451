"""The log of one server: structured lines on a descriptor, bounded in number and length. Never a prompt."""

import fcntl
import os
import time
import traceback
from collections.abc import Callable
from pathlib import PurePath

from imp_service.config.server_settings import Log as LogSettings
from imp_service.telemetry.line_limit import LineLimit
from imp_service.telemetry.log_entry import MAX_FRAMES, Field, LogEntry, as_json, as_text
from imp_service.telemetry.log_writer import LogWriter

LEVELS = ("debug", "info", "warning", "error")
STDERR = 2


class Log:
    """Any thread may write, and never waits. `event` is a fixed word of ours; what varies goes into the fields."""

    def __init__(
        self,
        settings: LogSettings,
        descriptor: int = STDERR,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        kind = settings.format or ("text" if _is_terminal(descriptor) else "json")
        self._least = LEVELS.index(settings.level)
        self._wall = wall
        self._limit = LineLimit(settings.max_lines_per_second, clock)
        # Its own copy: whatever becomes of number 2, no line goes to what is opened in its place.
        self._descriptor = _copy(descriptor)
        self._writer = LogWriter(self._descriptor, as_text if kind == "text" else as_json)

    def follow(self, settings: LogSettings) -> None:
        """Takes the level and the limit of new settings."""
        self._least = LEVELS.index(settings.level)
        self._limit.set_limit(settings.max_lines_per_second)

    @property
    def n_dropped(self) -> dict[str, int]:
        """Lines that were not written, by cause."""
        return {
            "rate": self._limit.n_suppressed,
            "backlog": self._writer.n_backlog,
            "failed": self._writer.n_failed,
        }

    def debug(self, event: str, *, message: str = "", **fields: Field) -> None:
        """What only a developer wants."""
        self._write("debug", event, message, fields)

    def info(self, event: str, *, message: str = "", **fields: Field) -> None:
        """What is as it should be: every line is written."""
        self._write("info", event, message, fields)

    def notice(self, event: str, *, message: str = "", **fields: Field) -> None:
        """Like info, of what a client can cause at will: so many a second."""
        self._limited("info", event, message, fields)

    def warning(self, event: str, *, message: str = "", **fields: Field) -> None:
        """What somebody should look at: so many a second of each event."""
        self._limited("warning", event, message, fields)

    def error(self, event: str, *, message: str = "", **fields: Field) -> None:
        """What went wrong here: so many a second of each event."""
        self._limited("error", event, message, fields)

    def raised(self, event: str, error: BaseException, **fields: Field) -> None:
        """An error with where it came from: innermost frame last, without the values in it.

        Words are told of our own errors alone: those of others may hold what a caller sent.
        """
        frames = tuple(
            f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        )
        words = getattr(error, "message", None)
        name = type(error).__name__
        message = f"{name}: {words}" if isinstance(words, str) else name
        self._limited("error", event, message, {**fields, "frames": frames[-MAX_FRAMES:]})

    def close(self) -> None:
        """Tells what was held back, writes what waits, and drops what comes later."""
        for event, n in self._limit.take_suppressed().items():
            self._write("warning", event, "lines were held back", {"suppressed": n})
        if self._writer.close() and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _limited(self, level: str, event: str, message: str, fields: dict[str, Field]) -> None:
        if LEVELS.index(level) < self._least:
            return
        suppressed = self._limit.admit(event)
        if suppressed is not None:
            self._write(level, event, message, {**fields, "suppressed": suppressed} if suppressed else fields)

    def _write(self, level: str, event: str, message: str, fields: dict[str, Field]) -> None:
        if LEVELS.index(level) >= self._least:
            self._writer.put(LogEntry(self._wall(), level, event, message, fields))


def _copy(descriptor: int) -> int:
    """-1 where there is nothing to copy: then every line counts as failed."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
    except OSError:
        return -1


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
