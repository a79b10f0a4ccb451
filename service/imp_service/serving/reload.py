"""Gives a running server new settings, bearer tokens and certificates: all of them, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from imp_service.config import Config, ConfigError
from imp_service.config.reload import Reloaded, reloaded
from imp_service.telemetry.log import Log


class RereadFiles(Protocol):
    """Files that can be read again."""

    @property
    def key(self) -> str:
        """The key of imp.conf that names them."""

    def prepare(self) -> Callable[[], None]:
        """Reads them, and returns a function that applies them. Raises ConfigError. On any thread."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The keys that a reload changed, that need a restart, and whose files were read again."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    files: tuple[str, ...]


class Reload:
    """On the event loop's thread. `read` reads the sources of the settings as a new start would."""

    def __init__(
        self, read: Callable[[], Config], current: Callable[[], Config], take: Callable[[Config], None], log: Log
    ) -> None:
        self._read = read
        self._current = current
        self._take = take
        self._log = log
        self._files: list[RereadFiles] = []
        self._one_at_a_time = asyncio.Lock()
        self._begun: set[asyncio.Task[None]] = set()

    def watch(self, files: RereadFiles) -> None:
        """Reads these files at every reload, too."""
        self._files.append(files)

    async def run(self) -> Outcome:
        """Reloads. Raises ConfigError if something cannot be used; then nothing has changed."""
        async with self._one_at_a_time:
            try:
                # On a thread: a file system may be slow.
                fresh, commits = await asyncio.to_thread(self._prepare)
                new = reloaded(self._current(), fresh)
            except ConfigError as error:
                self._log.error("reload", message=f"{error.message}; nothing has changed")
                raise
            for commit in commits:
                commit()
            self._take(new.config)
            return self._report(new)

    def begin(self) -> None:
        """Starts a reload for a signal; its outcome is in the log."""
        task = asyncio.get_running_loop().create_task(self._run_alone(), name="reload")
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def _run_alone(self) -> None:
        try:
            await self.run()
        except ConfigError:
            pass  # run() has logged it
        except Exception as error:
            self._log.raised("reload", error)

    def _prepare(self) -> tuple[Config, list[Callable[[], None]]]:
        return self._read(), [files.prepare() for files in self._files]

    def _report(self, new: Reloaded) -> Outcome:
        outcome = Outcome(new.changed, new.needs_restart, tuple(files.key for files in self._files))
        self._log.info("reload", message="done", changed=outcome.changed, files=outcome.files)
        if outcome.needs_restart:
            self._log.warning("reload", message="new values that need a restart", keys=outcome.needs_restart)
        return outcome
