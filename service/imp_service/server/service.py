"""The service from its first listener to its last call: listens, loads the model, serves, drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from imp_service.config import Config
from imp_service.core import Error, Progress
from imp_service.core.background_load import BackgroundLoad
from imp_service.generation import ModelRuntime
from imp_service.http_api.server import HttpServer
from imp_service.rpc.server import GrpcServer
from imp_service.serving.kernel_plans import kernel_plans
from imp_service.serving.listening import checked_addresses
from imp_service.serving.make_model import MakeModel, make_model
from imp_service.serving.packed_weights import PackedWeights
from imp_service.serving.security.access import Access
from imp_service.serving.security.tokens import Token
from imp_service.serving.server_state import ServerState

# Time to send the last statuses, also of requests whose device has failed.
LAST_SECONDS = 1.0
# Callers whose calls have ended may call again, and gRPC cancels calls without a reason when it stops. So it stops only
# after a time without a new call.
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
        keys: Sequence[Token] = (),
        has_front: bool = False,
        has_public_front: bool = False,
    ) -> None:
        """Raises ConfigError if a file that the settings name cannot be used. Nothing is bound yet.

        `reread` reads the sources of `config` again, for a reload. `keys` are tokens besides those of the settings.
        `has_front`: HTTP comes from a front alone, which names its clients.
        `has_public_front`: other machines reach HTTP through a front, though only this one reaches its socket.
        """
        self.state = ServerState(config, reread=reread)
        try:
            self._access = Access(self.state, keys)
            self.server = GrpcServer(self.state, self._access)
            self.http = HttpServer(self.state, self._access, has_front=has_front, has_public_front=has_public_front)
        except BaseException:
            self.state.close()
            raise
        self._make = partial(make, config)
        self._progress = progress
        self._loading: BackgroundLoad[ModelRuntime] | None = None
        self._packed = PackedWeights(self.state)
        self._stop_asked = asyncio.Event()

    @property
    def is_abandoned(self) -> bool:
        """Whether a thread cannot be stopped, such as one that reads from a dead disk.

        Only the end of the process ends it.
        """
        return self.state.background.is_running or (self._loading is not None and self._loading.is_running)

    @property
    def requires_tokens(self) -> bool:
        """Callers need a token."""
        return self._access.requires_tokens

    def stop(self) -> None:
        """Begins a final drain. run() returns when it is over."""
        self.state.drain.begin(is_final=True)
        self._stop_asked.set()

    async def run(self, on_serving: Callable[[], None], on_closing: Callable[[], None] = lambda: None) -> None:
        """Serves until stop() and the end of the drain. Raises errors of the start, and a fault of the device.

        `on_closing` is called before the listeners close, however the service ends.
        """
        has_drained = False
        try:
            addresses = checked_addresses(self.state.settings.listen, self.state.telemetry.log)
            self.http.bind(addresses)
            await self.server.start(addresses)
            self.http.start()
            self._access.watch()
            if await self._load():
                on_serving()
                await self._serve()
            await self.state.drain.wait()
            await self.state.calls.wait_until_quiet(QUIET_SECONDS, within=LAST_SECONDS)
            has_drained = True
        finally:
            on_closing()
            self._access.stop()
            await asyncio.gather(self.server.stop(LAST_SECONDS), self.http.stop(LAST_SECONDS))
            if has_drained:
                self.state.telemetry.log.info("stopped", message="every listener is closed")
            self.state.close()

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
            self.state.telemetry.log.info(
                "kernels", weights=plan.dtype, tensors=plan.n_tensors, kernels=" ".join(plan.kernels)
            )
        self.state.telemetry.log.info("speculation", drafters=model.drafters_text or "none")
        self.state.telemetry.log.debug("fingerprint", digest=model.fingerprint.digest, **model.fingerprint.parts)
        self.state.adopt(model)
        return True

    async def _serve(self) -> None:
        """Waits for stop() and the end of the drain. Raises a fault of the device."""
        ended = asyncio.create_task(self._drained())
        await asyncio.wait((ended, self.state.fault), return_when=asyncio.FIRST_COMPLETED)
        if self.state.fault.done():
            ended.cancel()
            fault: Error = self.state.fault.result()
            await self.state.calls.end_requests(fault, within=LAST_SECONDS)
            # Calls that arrive now are refused with DRAINING.
            await self.state.calls.wait_until_quiet(QUIET_SECONDS, within=LAST_SECONDS)
            raise fault

    async def _drained(self) -> None:
        await self._stop_asked.wait()
        await self.state.drain.wait()
