"""Loads on a thread: `imp serve` imports and makes the server while the weights are read.

A load can be stopped between two reports of its progress. Its thread is a daemon, because a read from a dead disk must
not keep the process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Generic, TypeVar

from imp_service import _core
from imp_service.config import Config
from imp_service.core.checkpoint import open_file
from imp_service.core.directory import metadata_of
from imp_service.core.draft import MatchVocabularies
from imp_service.core.load import LoadedModel, Progress, load_weights

T = TypeVar("T")
# A load reports after each read, so only a dead disk makes it take longer to stop.
STOP_SECONDS = 1.0


class LoadStopped(Exception):
    """Raised inside a load after stop()."""


class BackgroundLoad(Generic[T]):
    """Runs `work` on a thread of its own. Any thread may use it."""

    def __init__(
        self,
        name: str,
        work: Callable[[Progress], T],
        close: Callable[[T], None],
        on_progress: Progress | None = None,
    ) -> None:
        """`close` may be called twice with the result of a load that is stopped."""
        self.on_progress = on_progress
        # What `work` returned or raised.
        self.outcome: Future[T] = Future()
        self.outcome.set_running_or_notify_cancel()  # nobody cancels it; stop() ends the load
        self._work = work
        self._close = close
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """The thread is alive. The interpreter must not exit normally then, since that aborts native code."""
        return self._thread.is_alive()

    def stop(self, wait: float = 0.0) -> bool:
        """Stops the load and closes what it has loaded. False if its thread still runs after `wait` seconds."""
        self._is_stopping = True
        self._thread.join(wait)
        if self.outcome.done() and self.outcome.exception() is None:
            self._close(self.outcome.result())
        return not self.is_running

    def _run(self) -> None:
        try:
            result = self._work(self._report)
        except BaseException as error:
            self.outcome.set_exception(error)
            return
        self.outcome.set_result(result)
        if self._is_stopping:
            self._close(result)

    def _report(self, done: int, total: int) -> None:
        if self._is_stopping:
            raise LoadStopped
        if self.on_progress is not None:
            self.on_progress(done, total)


class WeightsLoad(BackgroundLoad[LoadedModel]):
    """Reads the weights of the settings' model, or of `file` in its place."""

    def __init__(
        self, config: Config, file: _core.ModelFile | None = None, match: MatchVocabularies | None = None
    ) -> None:
        """`match` compares the vocabularies of the model and a draft model."""
        self.config = config
        self._match = match
        self._file: Future[_core.ModelFile] = Future()
        if file is not None:
            self._file.set_result(file)
        super().__init__("imp-weights", self._open_and_load, LoadedModel.close)

    @cached_property
    def metadata(self) -> Mapping[str, object]:
        """The model's metadata. Waits until its file is open. If it cannot be opened, raises the reason."""
        return metadata_of(self._file.result())

    def _open_and_load(self, progress: Progress) -> LoadedModel:
        if not self._file.done():
            try:
                self._file.set_result(open_file(self.config))
            except BaseException as error:
                self._file.set_exception(error)
        loaded = load_weights(self.config, self._file.result(), progress, lambda: self.metadata, self._match)
        del self._file  # it is large, and its metadata is known
        return loaded
