"""A server in this process: its state and its listeners on the shared loop, and clients whose every call is checked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import grpc

from imp_service import _core
from imp_service.config import read_settings
from imp_service.http_api.server import HttpServer
from imp_service.pb import admin_pb2_grpc, inference_pb2_grpc
from imp_service.rpc.server import GrpcServer
from imp_service.serving.listening import checked_addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.calls.checked_channel import checked
from support.calls.wire import ask, tokens_of
from support.run.patience import HANGS_AFTER
from support.servers.gate import open_gates
from support.servers.loop_thread import loop_thread
from support.servers.served_models import ServedModel, built_in
from support.servers.server_checks import CanaryLoop, Metadata, last_problems_of

__all__ = ["LIVE", "Served", "ask", "serve", "tokens_of"]

T = TypeVar("T")
# Settings of a test server: few threads, and a cache that fits the sequences of every test.
LOOKS_EVERY = 0.001
DEFAULTS = ("device.threads=1", "kv.bytes=8MiB", "text.threads=1", "drain.grace=5s")


class Served:
    """One server, from serve() to close(). Tests call it from their own threads."""

    def __init__(
        self,
        model: ServedModel,
        settings: Sequence[str],
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
    ) -> None:
        self.model = model
        self.metadata = metadata
        self._settings = [*DEFAULTS, *model.settings, *settings]
        # What a reload reads.
        self._sources = self._settings
        self._credentials = credentials
        # A test that breaks the server on purpose sets it to False.
        self.is_checked = True
        self.thread = loop_thread()
        self.state: ServerState
        self.server: GrpcServer
        self.access: Access
        self._channels: list[grpc.Channel] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        if any(setting.startswith(("listen.http=", "listen.metrics=")) for setting in settings):
            import aiohttp  # noqa: F401  # on the loop it would hold the loop for longer than any step may
        try:
            self.run(self._start())
        except BaseException:
            self._log.close()
            raise
        self.n_blocks = self._count_blocks()
        self.canary_channel = self.channel()
        LIVE.append(self)

    async def _start(self) -> None:
        clock = self.thread.clock
        config = read_settings(None, self._settings)
        self.state = ServerState(
            config,
            reread=lambda: read_settings(None, self._sources),
            clock=clock,
            wall=clock.wall,
            log_to=self._log.fileno(),
        )
        try:
            self.access = Access(self.state)
            self.server = GrpcServer(self.state, self.access)
            self.http = HttpServer(self.state, self.access)
            addresses = checked_addresses(config.settings.listen, self.state.telemetry.log)
            self.http.bind(addresses)
            await self.server.start(addresses)
            self.access.watch()
            self.state.adopt(await asyncio.to_thread(self.model.make, config, clock))
            self.http.start()
            if self.http._starting is not None:
                await self.http._starting
        except BaseException:
            self.state.close()
            raise

    @property
    def address(self) -> str:
        """The address of the first data listener."""
        return self.server.addresses[0]

    def close(self) -> None:
        """Stops at once; calls that still run end as cancelled."""
        if self in LIVE:
            LIVE.remove(self)
            for channel in self._channels:
                channel.close()
            self.run(self._stop())
            self._log.close()

    async def _stop(self) -> None:
        self.access.stop()
        await asyncio.gather(self.server.stop(0), self.http.stop(0))
        self.state.close()

    # Clients.

    def channel(self, *options: tuple[str, Any]) -> grpc.Channel:
        """Returns a new connection that checks every call and closes with the server."""
        raw = self._open(options)
        self._channels.append(raw)
        return checked(raw, self._detokenize)

    @contextlib.contextmanager
    def connection(self, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
        """Yields a channel whose connection closes with the block."""
        with self._open(options) as raw:
            yield checked(raw, self._detokenize)

    @contextlib.contextmanager
    def canary(self) -> Iterator[CanaryLoop]:
        """Generates the canary again and again during the block; fails if a token is wrong."""
        with self.connection() as channel:
            canary = CanaryLoop(self.model, channel, self.metadata)
            try:
                yield canary
            finally:
                canary.stop()
            assert canary.problems == []

    def _open(self, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        # Otherwise channels to one address share a connection.
        all_options = [("grpc.use_local_subchannel_pool", 1), *options]
        if self._credentials is None:
            return grpc.insecure_channel(self.address, options=all_options)
        return grpc.secure_channel(self.address, self._credentials, options=all_options)

    @property
    def admin(self) -> admin_pb2_grpc.AdminServiceStub:
        """A stub on a new connection to the admin listener, which `listen.admin` must name."""
        assert self.server.admin_address is not None, "no admin listener"
        raw = grpc.insecure_channel(self.server.admin_address)
        self._channels.append(raw)
        return admin_pb2_grpc.AdminServiceStub(checked(raw))

    @cached_property
    def inference(self) -> inference_pb2_grpc.InferenceServiceStub:
        """A stub whose calls share one connection: without a tenant, they are one caller's."""
        return inference_pb2_grpc.InferenceServiceStub(self.channel())

    def _detokenize(self, ids: Sequence[int], special_tokens: bool) -> str:
        return self.state.model.tokenizer.decode(list(ids), special_tokens=special_tokens)

    # The inside.

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine on the server's loop."""
        return self.thread.run(work)

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function on the loop's thread, which owns all state of the server; returns the result."""
        return self.thread.call(function)

    def jump(self, seconds: float) -> None:
        """Sets the server's clock forward, and calls every timer that came due."""
        self.thread.jump(seconds)

    def reload(self, *settings: str) -> tuple[str, ...]:
        """Reloads as if the server had been started with these settings, too; returns the keys that changed."""
        self._sources = [*self._settings, *settings]
        return self.run(self.state.reload.run()).changed

    def log_lines(self, begin: int = 0) -> list[str]:
        """Returns the lines of the server's log after the first `begin` bytes."""
        content = os.pread(self._log.fileno(), self.log_bytes - begin, begin)
        return content.decode().splitlines()

    @property
    def log_bytes(self) -> int:
        """The length of the server's log."""
        return os.fstat(self._log.fileno()).st_size

    def metric(self, name: str, **labels: str) -> float:
        """Returns a sample of the server's metrics; 0 if there is none yet."""
        return self.call(lambda: self.state.telemetry.metrics.registry.get_sample_value(name, labels)) or 0.0

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the server's clock for the block: only jumps move it, and make timers due."""
        self.call(self.thread.clock.stop)
        try:
            yield
        finally:
            self.call(self.thread.clock.go)

    def stats(self) -> _core.EngineStats:
        """Returns the engine's numbers."""
        return self.call(self.state.model.client.engine.stats)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until `holds` is true of the server's state; evaluates it on the server's loop."""
        give_up = time.monotonic() + HANGS_AFTER / 2
        rest = threading.Event()
        # Waits here, not on the loop, whose clock may be frozen.
        while not self.call(holds):
            assert time.monotonic() < give_up, f"never came to hold: {what}"
            rest.wait(LOOKS_EVERY)

    def wait_for_rest(self, *, live_blocks: int = 0, sessions: int = 0) -> None:
        """Waits until nothing runs or waits, and only `sessions` hold blocks."""

        def is_at_rest() -> bool:
            stats = self.state.model.client.engine.stats()
            found = (stats.running, stats.waiting, stats.waiting_tokens, stats.sessions, stats.blocks_live)
            return found == (0, 0, 0, sessions, live_blocks)

        self.wait_until(is_at_rest, f"at rest with {sessions} sessions and {live_blocks} blocks")

    def wait_for_calls(self) -> None:
        """Waits until every request's record is closed; a caller may get its status a moment earlier."""
        n_open = self.state.telemetry.metrics.active._value.get
        self.wait_until(
            lambda: (len(self.state.requests), self.state.calls.n_requests, n_open()) == (0, 0, 0),
            "no request is under way",
        )

    def _count_blocks(self) -> int:
        stats = self.stats()
        return stats.blocks_live + stats.blocks_cached + stats.blocks_free


# The running servers; the always-on checks examine them.
LIVE: list[Served] = []


@contextlib.contextmanager
def serve(
    *settings: str,
    model: ServedModel | None = None,
    socket: Path | None = None,
    credentials: grpc.ChannelCredentials | None = None,
    metadata: Metadata = (),
) -> Iterator[Served]:
    """Yields a server with `settings` (texts of --set), on a free port or on `socket`; checks it if the block succeeds.

    Clients use `credentials`; the checks' own calls send `metadata`, such as a token.
    """
    listen = "127.0.0.1:0" if socket is None else f"unix://{socket}"
    given = [f"listen.grpc={json.dumps([listen])}", *settings]
    served = Served(model or built_in(), given, credentials, metadata)
    try:
        yield served
        problems = last_problems_of(served)
        assert not problems, "; ".join(problems)
    except BaseException:
        open_gates()
        raise
    finally:
        served.close()
