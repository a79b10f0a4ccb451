"""A load that is begun before those who need the model are ready for it: weights come while a server is made."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property

from imp_service import _core
from imp_service.config import Config
from imp_service.core.load import LoadedModel, Progress, load, open_file

# Between two pieces of a file: only a dead disk makes it longer.
ENDS_WITHIN = 1.0


class LoadEnded(Exception):
    """Raised inside a load that nobody waits for any more."""


class EarlyLoad:
    """Reads the settings' model from now on. May be used from any thread."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._file: Future[_core.ModelFile] = Future()
        self._loaded: Future[LoadedModel] = Future()
        self._progress: Progress | None = None
        self._is_ending = False
        # A daemon: a read from a dead disk must not keep the process.
        self._thread = threading.Thread(target=self._work, args=(config,), name="imp-weights", daemon=True)
        self._thread.start()

    @cached_property
    def metadata(self) -> Mapping[str, object]:
        """Of the file, once it is open; raises what kept it from that."""
        metadata: Mapping[str, object] = self._file.result().metadata
        return metadata

    def result(self, progress: Progress | None = None) -> LoadedModel:
        """Waits for the model, and tells `progress` from now on; what that raises ends the load."""
        self._progress = progress
        return self._loaded.result()

    def end(self) -> bool:
        """Stops what is not done and closes what is. Whether its thread is gone: the interpreter goes after it."""
        self._is_ending = True
        self._thread.join(ENDS_WITHIN)
        if self._loaded.done() and self._loaded.exception() is None:
            self._loaded.result().client.close()
        return not self._thread.is_alive()

    def _work(self, config: Config) -> None:
        try:
            self._file.set_result(open_file(config))
        except BaseException as error:
            self._file.set_exception(error)
            self._loaded.set_exception(error)
            return
        try:
            loaded = load(config, self._file.result(), self._report, lambda: self.metadata)
        except BaseException as error:
            self._loaded.set_exception(error)
        else:
            del self._file  # large, and all that is asked of it is known
            self._loaded.set_result(loaded)

    def _report(self, done: int, total: int) -> None:
        if self._is_ending:
            raise LoadEnded
        if self._progress is not None:
            self._progress(done, total)
