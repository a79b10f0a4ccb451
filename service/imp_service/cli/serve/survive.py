"""imp serve --survive: this process is a front, and its engine is an `imp serve` that it starts again when it ends."""

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from imp_service.cli.failure import CommandError
from imp_service.cli.serve.front_link import PARENT_OPTION, Inherited
from imp_service.cli.serve.notifier import READY, STOPPING, Notifier
from imp_service.cli.serve.ready_file import ReadyFile
from imp_service.cli.serve.shown_lines import END_LINE, http_lines, is_for_people, print_message
from imp_service.cli.serve.signals import StopSignals
from imp_service.config import AUTO, Config, ConfigError, Settings
from imp_service.front.relay.front import Front
from imp_service.front.relay.server import FrontServer
from imp_service.front.relay.state import front_options
from imp_service.front.relay.upstreams import Upstreams
from imp_service.front.supervision.engine_process import EngineProcess
from imp_service.front.supervision.parent import Starter
from imp_service.front.supervision.supervisor import Supervisor
from imp_service.serving.listening import checked_addresses
from imp_service.telemetry.log import Log
from imp_service.telemetry.log_capture import capture

Reread = Callable[[], Config]
# For people, after the addresses.
SURVIVES = "  the engine is process {pid}: when it ends, it is started again, and answers over HTTP go on"


def run_front(
    words: Sequence[str], config: Config, reread: Reread, ready: ReadyFile | None, signals: StopSignals
) -> int:
    """Serves until a signal. `words` are those of the command line, which the engine process gets too."""
    gc.enable()
    if not config.settings.listen.http:
        raise CommandError("USAGE", "--survive: HTTP is off, expected --http ADDRESS: its streams are those that go on")
    return asyncio.run(_Front(words, config, reread, ready).run(signals))


class _Front:
    """On the main thread."""

    def __init__(self, words: Sequence[str], config: Config, reread: Reread, ready: ReadyFile | None) -> None:
        self._words = words
        self._config = config
        self._reread = reread
        self._ready = ready
        self._has_told = False

    async def run(self, signals: StopSignals) -> int:
        """The exit status."""
        settings = self._config.settings
        self._log = log = Log(settings.log)
        self._notifier = Notifier(lambda message: log.warning("notify", message=message))
        restore_logging = capture(log)
        upstreams = Upstreams(log=log)
        front = Front(upstreams, front_options(settings), log)
        try:
            # A start fails at once if another process uses an address, also one of the engine process.
            checked_addresses(settings.listen, log)
            self._server = server = FrontServer(settings, log)
            self._supervisor = Supervisor(
                Starter(self._command, log, self._parent_command if _may_fork(settings) else None),
                upstreams.add_child(),
                front,
                log,
                drain_seconds=self._drain_seconds,
                on_serving=self._serves,
            )
            signals.call(asyncio.get_running_loop(), self._stop, self._reload)
            await upstreams.start()
            await server.start(front)
            try:
                with self._notifier.keep_alive(lambda: True):
                    return await self._supervisor.run()
            finally:
                if self._ready is not None:
                    self._ready.remove()
                await server.stop()
                await upstreams.stop()
        finally:
            restore_logging()
            log.close()

    def _command(self, listening: int, link: int) -> list[str]:
        return _serve_command(*Inherited(listening, link).words, *self._words)

    def _parent_command(self, control: int) -> list[str]:
        return _serve_command(PARENT_OPTION, str(control), *self._words)

    def _drain_seconds(self) -> float:
        drain = self._config.settings.drain
        return (drain.delay + drain.grace).total_seconds()

    def _stop(self, name: str) -> None:
        self._log.info("signal", name=name)
        self._supervisor.stop()
        self._notifier.send(STOPPING, "draining")

    def _reload(self) -> None:
        """The engine process reads its settings again, and logs what is wrong with them."""
        with contextlib.suppress(ConfigError, OSError):
            self._config = self._reread()
        self._supervisor.reload()

    def _serves(self, engine: EngineProcess, message: Mapping[str, Any]) -> None:
        """The engine process has loaded its model."""
        facts = {**message["facts"], "http": self._server.addresses, "pid": os.getpid(), "engine_pid": engine.pid}
        if self._ready is not None:
            self._ready.write(facts)
        settings = self._config.settings
        if self._has_told or not is_for_people(settings):
            self._log.info("engine serving", **{name: value for name, value in facts.items() if value is not None})
        else:
            http = http_lines(settings, self._server.addresses, requires_tokens=message["requires_tokens"])
            lines = [*message["lines"], *http, SURVIVES.format(pid=engine.pid), END_LINE]
            print_message(message["notes"], lines)
        if not self._has_told:
            self._notifier.send(READY, f"serving {facts['model']}")
        self._has_told = True


def _serve_command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "imp_service", "serve", *words]


def _may_fork(settings: Settings) -> bool:
    """A process that has begun CUDA cannot fork."""
    return settings.device.kind in (AUTO, "cpu")
