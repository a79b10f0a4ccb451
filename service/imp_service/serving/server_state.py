"""What all parts of a server share: its model, settings, phase, requests and sessions. On the event loop's thread."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from imp_service import __version__
from imp_service.config import Config
from imp_service.config.derived import approximations, one_word
from imp_service.config.reload import reloaded
from imp_service.core import EngineStats, Error, make_error
from imp_service.core.reserve import one_way_bytes
from imp_service.generation import ModelRuntime
from imp_service.serving.admission import Admission
from imp_service.serving.background import BackgroundThreads
from imp_service.serving.constraint_queue import ConstraintQueue
from imp_service.serving.drain import Drain
from imp_service.serving.engine_events import EngineEvents
from imp_service.serving.lifecycle import Lifecycle, Phase, loading
from imp_service.serving.message_memory import MessageLimit, MessageMemory
from imp_service.serving.reload import Reload
from imp_service.serving.running_calls import RunningCalls
from imp_service.serving.running_requests import RunningRequests
from imp_service.serving.served_model import ServedModel
from imp_service.serving.session.sessions import Sessions
from imp_service.serving.utilization import UtilizationMeter
from imp_service.serving.watchdog import Watchdog
from imp_service.serving.weights_digest import WeightsDigest
from imp_service.serving.workers import TextWorkers
from imp_service.telemetry import Telemetry
from imp_service.telemetry.log import STDERR

Clock = Callable[[], float]


class ServerState:
    """Made before the model is loaded. Until adopt(), calls that need the model are refused with LOADING."""

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Config] | None = None,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        log_to: int = STDERR,
    ) -> None:
        """`log_to` is a file descriptor; the state keeps a copy of it until close().

        `reread` reads the sources of `config` again, for a reload. Without it a reload finds no new settings.
        """
        self.config = config
        self.settings = config.settings
        self.clock = clock
        self.wall = wall
        self.started_at = wall()
        # Identifies this start of the process. Session ids contain it, since sessions do not outlive the process.
        self.instance_id = secrets.token_hex(4)
        self.telemetry = Telemetry(self.settings, clock=clock, log_to=log_to)
        self.lifecycle = Lifecycle()
        self.background = BackgroundThreads(self.lifecycle)
        self.digest = WeightsDigest(
            self.lifecycle, self.background, lambda: self.model, lambda: self.settings.model.sha256
        )
        self.calls = RunningCalls()
        self.drain = Drain(self.settings.drain, self.lifecycle, self.calls, self.telemetry.log)
        self.workers = TextWorkers(self.settings.text.threads, self.settings.scheduler.max_waiting_bytes)
        most = one_way_bytes(self.settings.limits)
        self.receiving = MessageMemory("bodies that are being received", most)
        self.sending = MessageMemory("replies that are not read yet", most)
        # Those of requests that the engine does not have yet. adopt() sets their room.
        self.waiting_images = MessageMemory("images that wait", 0, "media.waiting_bytes")
        self.constraints = ConstraintQueue()
        self.sessions = Sessions(self.settings.sessions, self.instance_id, clock)
        self.requests = RunningRequests(wall)
        self.admission = Admission(self.settings.scheduler.max_waiting, self._place_of, clock)
        self.utilization = UtilizationMeter(self._numbers, self._is_draining, clock=clock, wall=wall)
        self.watchdog = Watchdog(
            self.settings.watchdog,
            self._numbers,
            lambda: self.requests,
            self.utilization,
            self.telemetry,
            is_called=lambda: self.calls.n_requests > 0,
            on_stopped=lambda: self._break_off(make_error("BUG", "the engine has stopped without an error")),
            clock=clock,
        )
        self.calls.watch(self.watchdog.wake)
        self.telemetry.metrics.watch_engine(self._numbers, self.settings.kv.block_tokens)
        self.reload = Reload(reread or (lambda: config), lambda: self.config, self._take, self.telemetry.log)
        # Set if the device fails or the engine ends. The process then ends.
        self.fault: asyncio.Future[Error] = asyncio.get_running_loop().create_future()
        self._model: ModelRuntime | None = None
        # The lossy features of the model's replies.
        self.approximations = ""
        self._events: EngineEvents | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def has_model(self) -> bool:
        """The model is loaded."""
        return self._model is not None

    @property
    def model(self) -> ModelRuntime:
        """The model. Raises LOADING until there is one."""
        if self._model is None:
            raise loading()
        return self._model

    @property
    def served(self) -> ServedModel:
        """The facts against which requests are checked now. Raises LOADING until there is a model."""
        return ServedModel.of(self.model, self.settings)

    def message_limit(self, *, has_images: bool = False) -> MessageLimit:
        """The most bytes of a request's message or body. `has_images`: it has images, or may have them."""
        limit, model = MessageLimit("limits.max_message_bytes", self.settings.limits.max_message_bytes), self._model
        if not has_images or model is None or model.images is None:
            return limit
        with_images = MessageLimit("media.request_bytes", model.images.limits.request_bytes)
        return max(limit, with_images, key=lambda each: each.n_bytes)

    def adopt(self, model: ModelRuntime) -> None:
        """Serves a loaded model from now on. close() closes it."""
        self._events = EngineEvents(asyncio.get_running_loop(), model.client, self._break_off)
        self._model = model
        if model.images is not None:
            self.waiting_images.max_bytes = model.images.limits.waiting_bytes
        self.approximations = approximations(model.core.kv_dtypes)
        # Settings that were reloaded while the model loaded are applied too.
        self._take(reloaded(model.config, self.config).config)
        self.sessions.serve(model)
        core = model.core
        self.telemetry.set_model(
            model.name, architecture=core.architecture, device=core.device_name, version=__version__
        )
        if (trial := model.cache_trial) is not None:
            self.telemetry.metrics.set_cache_trial(trial.divergence, trial.same_top)
            self.telemetry.log.info(
                "cache", kv=one_word(core.kv_dtypes), divergence=trial.divergence, same_top=trial.same_top
            )
        self._watching = asyncio.get_running_loop().create_task(self.watchdog.run(), name="watchdog")
        self.lifecycle.loaded()

    def _place_of(self, payer: str, n_own: int, n_coming: int) -> tuple[int, int]:
        return self.model.client.engine.place_of(payer, n_own=n_own, n_coming=n_coming)

    def _take(self, config: Config) -> None:
        """Applies new settings."""
        self.config, self.settings = config, config.settings
        self.telemetry.log.follow(self.settings.log)
        self.drain.follow(self.settings.drain)
        self.sessions.follow(self.settings.sessions)
        self.watchdog.follow(self.settings.watchdog)

    def _numbers(self) -> EngineStats | None:
        """The engine's numbers; None without an engine."""
        if self._model is None or self._model.client.is_closed:
            return None
        return self._model.client.engine.stats()

    def _is_draining(self) -> bool:
        return self.lifecycle.phase in (Phase.LEAVING, Phase.DRAINING, Phase.STOPPED)

    def _break_off(self, fault: Error) -> None:
        """Ends service because of a fault of the device: its requests are lost, and new ones must go elsewhere."""
        if self.fault.done():
            return
        self.lifecycle.become(Phase.DRAINING)
        self.fault.set_result(fault)

    def close(self) -> None:
        """Closes the model. Requests that still run end as cancelled."""
        self.lifecycle.become(Phase.STOPPED)
        self.sessions.close_all()
        if self._watching is not None:
            self._watching.cancel()
        if self._events is not None:
            self._events.detach()
        if self._model is not None:
            self._model.close()
        self.workers.close()
        self.constraints.close()
        self.telemetry.close()
