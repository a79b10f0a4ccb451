"""The log of a server: structured lines of limited rate and length, without prompts."""

import fcntl
import os
import time
import traceback
from collections.abc import Callable
from pathlib import PurePath

from imp_service.config.server_settings import LogSettings
from imp_service.telemetry.line_limit import LineLimit
from imp_service.telemetry.log_entry import MAX_FRAMES, Field, LogEntry, as_json, as_text
from imp_service.telemetry.log_writer import LogWriter

LEVELS = ("debug", "info", "warning", "error")
STDERR = 2


class Log:
    """Any thread may write; writing never blocks. `event` is a fixed word; variable parts go into fields."""

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
        # A copy: if descriptor 2 is closed and reused, no line goes to the wrong file.
        self._descriptor = _copy(descriptor)
        self._writer = LogWriter(self._descriptor, as_text if kind == "text" else as_json)

    def follow(self, settings: LogSettings) -> None:
        """Applies the level and the limit of new settings."""
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
        """A line for developers."""
        self._write("debug", event, message, fields)

    def info(self, event: str, *, message: str = "", **fields: Field) -> None:
        """A line about normal operation, never limited."""
        self._write("info", event, message, fields)

    def notice(self, event: str, *, message: str = "", **fields: Field) -> None:
        """As info(), but limited: for lines that a client can cause at will."""
        self._limited("info", event, message, fields)

    def warning(self, event: str, *, message: str = "", **fields: Field) -> None:
        """A problem that an operator should look at; limited per event."""
        self._limited("warning", event, message, fields)

    def error(self, event: str, *, message: str = "", **fields: Field) -> None:
        """An error of the server; limited per event."""
        self._limited("error", event, message, fields)

    def raised(self, event: str, error: BaseException, **fields: Field) -> None:
        """An exception with its stack frames, innermost last, without values.

        Only imp's own errors are logged with their message. Messages of other errors may contain what a client sent.
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
        """Reports suppressed lines, writes what is queued, and drops later lines."""
        for event, n in self._limit.take_suppressed().items():
            self._write("warning", event, "lines were held back", {"suppressed": n})
        if self._writer.close() and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _limited(self, level: str, event: str, message: str, fields: dict[str, Field]) -> None:
        if LEVELS.index(level) < self._least:
            return
        suppressed = self._limit.allow(event)
        if suppressed is not None:
            self._write(level, event, message, {**fields, "suppressed": suppressed} if suppressed else fields)

    def _write(self, level: str, event: str, message: str, fields: dict[str, Field]) -> None:
        if LEVELS.index(level) >= self._least:
            self._writer.put(LogEntry(self._wall(), level, event, message, fields))


def _copy(descriptor: int) -> int:
    """A copy; -1 if the descriptor is closed, and then every line counts as failed."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
    except OSError:
        return -1


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
