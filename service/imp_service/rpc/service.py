"""One served model from its first listener to its last call: listens, loads, warms up, serves, drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from imp_service.config import Config
from imp_service.core import Error, Progress
from imp_service.core.background_load import BackgroundLoad
from imp_service.generation import ModelRuntime
from imp_service.rpc.server import Server
from imp_service.serving.background_work import PackedWeights
from imp_service.serving.host import Host
from imp_service.serving.kernel_plans import kernel_plans
from imp_service.serving.loading import MakeModel, make_model

# For statuses that are under way when everything has ended, and for requests whose device is gone.
LAST_SECONDS = 1.0
# Callers whose calls have just ended come back. What has reached gRPC when it stops it cancels, without a reason:
# it stops when nobody has come for this long.
QUIET_SECONDS = 0.1


class Service:
    """On the event loop's thread."""

    def __init__(
        self,
        config: Config,
        progress: Progress,
        make: MakeModel = make_model,
        *,
        reread: Callable[[], Config] | None = None,
    ) -> None:
        """Raises ConfigError where a file that the settings name cannot be used; nothing is bound yet.

        `reread` reads the sources of `config` again, for a reload.
        """
        self.host = Host(config, reread=reread)
        try:
            self.server = Server(self.host)
        except BaseException:
            self.host.close()
            raise
        self._make = partial(make, config)
        self._progress = progress
        self._loading: BackgroundLoad[ModelRuntime] | None = None
        self._packed = PackedWeights(self.host)
        self._stop_asked = asyncio.Event()

    @property
    def is_abandoned(self) -> bool:
        """A thread cannot be stopped, as one that reads from a dead disk: only the end of the process ends it."""
        return self.host.background.is_running or (self._loading is not None and self._loading.is_running)

    def stop(self) -> None:
        """Begins the end: run() returns when the drain is over."""
        self.host.drain.begin(is_final=True)
        self._stop_asked.set()

    async def run(self, on_serving: Callable[[], None], on_closing: Callable[[], None] = lambda: None) -> None:
        """Until stopped. Raises what made serving impossible: at the start, or the device's fault.

        `on_closing` is called before the listeners close, however the server ends.
        """
        has_drained = False
        try:
            await self.server.start()
            if await self._load():
                on_serving()
                await self._serve()
            await self.host.drain.wait()
            await self.host.calls.wait_until_quiet(QUIET_SECONDS, within=LAST_SECONDS)
            has_drained = True
        finally:
            on_closing()
            await self.server.stop(LAST_SECONDS)
            if has_drained:
                self.host.telemetry.log.info("stopped", message="every listener is closed")
            self.host.close()

    async def _load(self) -> bool:
        """Loads the model and begins to serve it. False if a stop came first."""
        self._loading = BackgroundLoad("imp-load", self._make, ModelRuntime.close, self._progress)
        loaded = asyncio.wrap_future(self._loading.outcome)
        stopping = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not loaded.done():
                loaded.cancel()
                self._loading.stop()
        if loaded.cancelled():
            return False
        model = loaded.result()
        for plan in kernel_plans(model):
            self.host.telemetry.log.info(
                "kernels", message="", weights=plan.dtype, tensors=plan.n_tensors, kernels=" ".join(plan.kernels)
            )
        self.host.adopt(model)
        return True

    async def _serve(self) -> None:
        """Until asked to stop and drained; raises the device's fault."""
        ended = asyncio.create_task(self._drained())
        await asyncio.wait((ended, self.host.fault), return_when=asyncio.FIRST_COMPLETED)
        if self.host.fault.done():
            ended.cancel()
            fault: Error = self.host.fault.result()
            await self.host.calls.end_requests(fault, within=LAST_SECONDS)
            # Calls that were on their way are told why, too.
            await self.host.calls.wait_until_quiet(QUIET_SECONDS, within=LAST_SECONDS)
            raise fault

    async def _drained(self) -> None:
        await self._stop_asked.wait()
        await self.host.drain.wait()
