"""A server of this process for its own calls, on a socket that only this user can reach."""

import asyncio
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.config.sources import Assignment
    from imp_service.server.service import Service


class LocalServer:
    """Serves within a `with` block. Its settings are those of `settings()` besides the caller's."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="imp-")
        self._changed = threading.Condition()
        self._is_serving = False
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Service | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"unix://{Path(self._folder.name) / 'imp.sock'}"

    def settings(self) -> "list[Assignment]":
        """What the server needs, whatever the user's own settings say."""
        from imp_service.config.sources import of_option
        from imp_service.config.toml import write_string

        listen = {"listen.grpc": f"[{write_string(self.address)}]", "listen.http": "[]"}
        quiet = {"log.level": '"error"', "drain.delay": '"0s"'}
        return [of_option("imp replay", name, value) for name, value in {**listen, **quiet}.items()]

    def start(self, config: "Config") -> None:
        """Loads the model, and returns when it is served. Raises why it is not."""
        self._thread = threading.Thread(target=self._run, args=(config,), name="imp-server", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_serving or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loop is not None and self._service is not None and self._thread is not None:
            if self._is_serving and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._service.stop)
            self._thread.join()
        self._folder.cleanup()

    def _run(self, config: "Config") -> None:
        try:
            asyncio.run(self._serve(config))
        except BaseException as error:
            self._failure = error
        with self._changed:
            self._failure = self._failure or RuntimeError("the server ended")
            self._changed.notify_all()

    async def _serve(self, config: "Config") -> None:
        from imp_service.cli.progress import LoadingLine
        from imp_service.server.service import Service

        line = LoadingLine()

        def tell() -> None:
            line.clear()
            with self._changed:
                self._is_serving = True
                self._changed.notify_all()

        self._loop, self._service = asyncio.get_running_loop(), Service(config, line)
        try:
            await self._service.run(tell)
        finally:
            line.clear()
