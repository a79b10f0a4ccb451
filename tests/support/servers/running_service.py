"""A whole service in this process: from its first listener through load and warm-up to its end, whatever that is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from imp_service.config import read_settings
from imp_service.generation import ModelRuntime
from imp_service.server.service import Service
from imp_service.serving.make_model import MakeModel, make_model
from support.run.patience import HANGS_AFTER
from support.servers.loop_thread import loop_thread
from support.servers.served import DEFAULTS


class Running:
    """A service on the shared loop; `outcome` is the result of its run()."""

    def __init__(self, make: MakeModel, settings: tuple[str, ...]) -> None:
        self.thread = loop_thread()
        self.is_serving = threading.Event()
        config = read_settings(None, [*DEFAULTS, 'listen.grpc=["127.0.0.1:0"]', *settings])

        async def begin() -> tuple[Service, asyncio.Task[None]]:
            service = Service(config, lambda done, total: None, make)
            running = asyncio.create_task(service.run(self.is_serving.set))
            while not service.server.addresses and not running.done():
                await asyncio.sleep(0)
            return service, running

        self.service, self._running = self.thread.run(begin())

    @property
    def address(self) -> str:
        return self.service.server.addresses[0]

    def stop(self) -> None:
        self.thread.call(self.service.stop)

    def wait(self) -> None:
        """Waits until the service has ended; raises what it raised."""

        async def ended() -> None:
            await asyncio.wait_for(asyncio.shield(self._running), HANGS_AFTER)

        self.thread.run(ended())


@contextmanager
def running(make: MakeModel = make_model, *settings: str) -> Iterator[Running]:
    it = Running(make, settings)
    try:
        yield it
    finally:
        it.stop()
        if not it._running.done():
            it.wait()


def failed_start(*settings: str) -> BaseException:
    """Returns the exception with which a service with these settings ends."""

    def make(*_: object) -> ModelRuntime:
        raise AssertionError("it has begun to load")

    try:
        Running(make, settings).wait()
    except Exception as error:
        return error
    raise AssertionError("it has started")
