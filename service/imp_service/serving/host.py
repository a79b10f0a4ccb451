"""One served model and everything its servicers share. On the event loop's thread, unless said."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from imp_service.config import Config
from imp_service.generation import LanguageModel
from imp_service.serving.engine_events import EngineEvents
from imp_service.serving.lifecycle import Lifecycle, Phase
from imp_service.serving.refusal import Refusal
from imp_service.serving.sessions import Sessions
from imp_service.serving.workers import TextWorkers

Clock = Callable[[], float]


class Host:
    """Made before the model is there: until adopt(), calls that need it are refused with LOADING."""

    def __init__(self, config: Config, *, clock: Clock = time.monotonic, wall: Clock = time.time) -> None:
        self.config = config
        self.settings = config.settings
        self.clock = clock
        self.wall = wall
        self.started_at = wall()
        # Names this start of the process: sessions do not outlive it, and their ids carry it.
        self.instance_id = secrets.token_hex(4)
        self.lifecycle = Lifecycle()
        self.workers = TextWorkers(self.settings.text.threads, self.settings.scheduler.max_waiting_bytes)
        self.sessions = Sessions(self.settings.sessions, self.instance_id, clock)
        self._model: LanguageModel | None = None
        self._events: EngineEvents | None = None

    @property
    def model(self) -> LanguageModel:
        """The model; raises LOADING until there is one."""
        if self._model is None:
            self.lifecycle.require_open()
            raise Refusal("LOADING", "the model is being loaded", retry_after=1.0)
        return self._model

    def adopt(self, model: LanguageModel) -> None:
        """Takes a loaded model and serves it from now on. The host closes it."""
        self._events = EngineEvents(asyncio.get_running_loop(), model.client)
        self._model = model
        self.config, self.settings = model.config, model.config.settings
        self.sessions.serve(model)
        self.lifecycle.become(Phase.SERVING)

    def close(self) -> None:
        """Lets the model go. What still runs ends as cancelled."""
        self.lifecycle.become(Phase.STOPPED)
        self.sessions.close_all()
        if self._events is not None:
            self._events.detach()
        if self._model is not None:
            self._model.close()
        self.workers.close()
