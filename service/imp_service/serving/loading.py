"""Loads a model beside the event loop, in a thread that can be told to stop between two reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from imp_service.config import Config
from imp_service.core.early_load import EarlyLoad
from imp_service.generation import LanguageModel, finish_load, load_model
from imp_service.serving.warm_up import warm_up

# Bytes done, bytes in all.
Progress = Callable[[int, int], None]
MakeModel = Callable[[Config, Progress], LanguageModel]


class LoadingStopped(Exception):
    """Raised inside a load that nobody waits for any more."""


def make_model(config: Config, progress: Progress) -> LanguageModel:
    """A model that has shown that it works. Takes long."""
    return _warmed_up(load_model(config, progress=progress))


def make_model_of(early: EarlyLoad) -> MakeModel:
    """The same of weights that are on their way."""
    return lambda _, progress: _warmed_up(finish_load(early, progress))


def _warmed_up(model: LanguageModel) -> LanguageModel:
    try:
        model.prepare_chats()
        warm_up(model)
    except BaseException:
        model.close()
        raise
    return model


class Loading:
    """One load. On the event loop's thread, but for `progress`."""

    def __init__(self, config: Config, make: MakeModel, progress: Progress) -> None:
        self._config = config
        self._make = make
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[LanguageModel] = self._loop.create_future()
        self._is_stopping = False
        # A daemon: a read from a dead disk must not keep the process.
        self._thread = threading.Thread(target=self._work, name="imp-load", daemon=True)

    @property
    def is_running(self) -> bool:
        """The thread is alive: the interpreter must not be taken down around it."""
        return self._thread.is_alive()

    async def run(self) -> LanguageModel:
        """The model. Cancelled, it tells the thread to stop and does not wait for it."""
        self._thread.start()
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            self._is_stopping = True
            raise

    def _work(self) -> None:
        try:
            model = self._make(self._config, self._report)
        except BaseException as error:
            self._tell(error)
        else:
            self._tell(model)

    def _report(self, done: int, total: int) -> None:
        if self._is_stopping:
            raise LoadingStopped
        self._progress(done, total)

    def _tell(self, outcome: LanguageModel | BaseException) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:  # the loop is closed: the process is ending
            self._discard(outcome)

    def _settle(self, outcome: LanguageModel | BaseException) -> None:
        if self._is_stopping:
            self._discard(outcome)
        elif isinstance(outcome, BaseException):
            self._done.set_exception(outcome)
        else:
            self._done.set_result(outcome)

    @staticmethod
    def _discard(outcome: LanguageModel | BaseException) -> None:
        if not isinstance(outcome, BaseException):
            outcome.close()
