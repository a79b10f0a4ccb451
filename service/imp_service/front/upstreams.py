"""The servers behind a front: which there are, which are ready, and how a request is sent to one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from aiohttp import (
    BaseConnector,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    UnixConnector,
)
from aiohttp.http import HttpProcessingError
from yarl import URL

from imp_service.config.address import UNIX, Address
from imp_service.telemetry.log import Log

# Seconds.
RESOLVE_EVERY = 5.0
PROBE_EVERY = 1.0
PROBE_WAITING_EVERY = 0.05
PROBE_TIMEOUT = 1.0
CONNECT_TIMEOUT = 2.0
# Shorter than http.idle_timeout, so that a server rarely closes a connection that is just being used again.
IDLE_SECONDS = 30.0
# A stream without a byte for so long ends if its server does not answer so many probes either.
SILENT_SECONDS = 5.0
MAX_UNANSWERED = 3
MAX_UPSTREAMS = 64
# Connections of one upstream that are being opened.
MAX_OPENING = 32
# An address of a Unix socket that has no file begins so.
ABSTRACT = "unix-abstract:"
# aiohttp holds up to twice as many unread bytes of a response.
READ_BYTES = 8 * 1024
# Of a response's head.
MAX_LINE_BYTES = 16 * 1024
READY, ALIVE = "/health", "/health/live"
# The signals and the status with which a process ends by its own fault.
FAULTS = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT))
FATAL_STATUS = 70
# What fails if an upstream cannot be reached, ends, or does not speak HTTP.
FAILURES = (ClientError, OSError, HttpProcessingError, ValueError)
AUTOMATIC = ("accept", "accept-encoding", "content-type", "user-agent")


@dataclass(frozen=True, slots=True)
class Death:
    """How an engine process ended: by a signal, or with a status."""

    signal: int | None = None
    status: int | None = None
    # It hung, and its supervisor ended it.
    by_watchdog: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether what it did can be the cause. Others can end it too."""
        return self.by_watchdog or self.signal in FAULTS or self.status == FATAL_STATUS


class Flight:
    """One request that is on its way to an upstream, or whose response is."""

    def __init__(self, upstream: Upstream, alarm: asyncio.Timeout) -> None:
        self.upstream = upstream
        self._alarm = alarm
        self.last_byte = asyncio.get_running_loop().time()

    def cut(self) -> None:
        """Ends it: its task gets a TimeoutError."""
        if not self._alarm.expired():
            self._alarm.reschedule(0.0)


class Upstream:
    """One address. Its task asks whether it is ready."""

    def __init__(self, address: str, upstreams: Upstreams, *, is_child: bool = False) -> None:
        """`is_child`: a supervisor tells when its process ends."""
        self.address = address
        self.is_child = is_child
        self.has_ended = False
        self.is_ready = False
        self.was_ready = False
        self.flights: set[Flight] = set()
        self._n_unanswered = 0
        self._all = upstreams
        # Until the session exists, nobody can send anything.
        self._session = _session(address)
        self._base = "http://upstream" if _is_path(address) else f"http://{address}"
        self._asked = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._watch(), name=f"upstream {address}")

    @property
    def n_open(self) -> int:
        """Requests of this front that it has."""
        return len(self.flights)

    @contextlib.asynccontextmanager
    async def flight(self) -> AsyncIterator[Flight]:
        """A request may be sent within the `with` block. Raises TimeoutError if the upstream no longer answers."""
        async with asyncio.timeout(None) as alarm:
            flight = Flight(self, alarm)
            self.flights.add(flight)
            try:
                yield flight
            finally:
                self.flights.discard(flight)

    async def send(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: Any) -> ClientResponse:
        """The head of the response. `body`: bytes, or an iterator of them. Raises one of FAILURES."""
        response = await self._session.request(
            method,
            URL(self._base + target, encoded=True),
            headers=headers,
            data=body,
            allow_redirects=False,
            skip_auto_headers=AUTOMATIC,
        )
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        return response

    def failed(self) -> None:
        """A request failed here: not ready until it answers again."""
        self.set_ready(is_ready=False)
        self._asked.set()

    def set_ready(self, *, is_ready: bool) -> None:
        """Whether it takes new requests."""
        is_ready = is_ready and not self.has_ended
        self.was_ready = self.was_ready or is_ready
        if is_ready != self.is_ready:
            self.is_ready = is_ready
            self._all.tell_change()

    async def end(self) -> None:
        """The upstream is gone. Its requests end with their connections, or are cut when it is silent."""
        self.has_ended = True
        self.set_ready(is_ready=False)
        self._task.cancel()
        await asyncio.wait((self._task,))
        while self.flights:
            await asyncio.sleep(PROBE_WAITING_EVERY)
            await self._cut_silent()
        await self._session.close()

    async def _watch(self) -> None:
        while True:
            self._asked.clear()
            self.set_ready(is_ready=(await self._ask(READY) or 500) < 500)
            await self._cut_silent()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_EVERY if self.is_ready else PROBE_WAITING_EVERY):
                    await self._asked.wait()

    async def _cut_silent(self) -> None:
        """Ends the requests that wait for a server that does not answer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        silent = [flight for flight in self.flights if flight.last_byte < began - SILENT_SECONDS]
        if not silent or await self._ask(ALIVE) not in (None, 503):
            self._n_unanswered = 0
        elif loop.time() - began < 2 * PROBE_TIMEOUT:  # or this process is late itself
            self._n_unanswered += 1
        if self._n_unanswered >= MAX_UNANSWERED:
            for flight in silent:
                if flight.last_byte < began - SILENT_SECONDS:
                    flight.cut()

    async def _ask(self, path: str) -> int | None:
        """The status of the answer to a probe; None: there is none."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                response = await self.send("GET", path, [("via", self._all.via)], None)
                async with response:
                    return response.status
        except (*FAILURES, TimeoutError):
            return None


class Child:
    """An engine process and those that follow it: each of them is an upstream."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._all = upstreams
        self._upstream: Upstream | None = None

    def started(self, address: str) -> None:
        """There is a process at this address, where no other has been."""
        self._upstream = self._all.add(address, is_child=True)

    def died(self, death: Death) -> None:
        """The process has ended."""
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            self._all.drop(upstream.address)
            self._all.on_death(upstream, death)


class Upstreams:
    """All of them. A host name stands for each of its addresses."""

    def __init__(self, addresses: Sequence[str] = (), *, log: Log) -> None:
        # Names this front to others, and to itself.
        self.via = f"1.1 imp-{secrets.token_hex(8)}"
        self._addresses = addresses
        self._log = log
        # Called when a child has died.
        self.on_death: Callable[[Upstream, Death], None] = lambda upstream, death: None
        self._by_address: dict[str, Upstream] = {}
        self._changed = asyncio.Event()
        self._resolving: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        # When the last one that was ready ceased to be.
        self._ready_until = -1e9

    async def start(self) -> None:
        """Finds the upstreams of the addresses, and watches them."""
        for address in self._addresses:
            if not _has_name(address):
                self.add(address)
        if any(map(_has_name, self._addresses)):
            await self.resolve()
            self._resolving = asyncio.get_running_loop().create_task(self._follow(), name="resolve")

    async def stop(self) -> None:
        """Ends all."""
        if self._resolving is not None:
            self._resolving.cancel()
        for upstream in [*self.all]:
            self.drop(upstream.address)
            for flight in [*upstream.flights]:
                flight.cut()
        if self._ending:
            await asyncio.wait(self._ending)

    def add_child(self) -> Child:
        """An engine process that a supervisor runs."""
        return Child(self)

    @property
    def all(self) -> Collection[Upstream]:
        """Those that are known now."""
        return self._by_address.values()

    @property
    def can_resume_elsewhere(self) -> bool:
        """Two upstreams are or were ready."""
        return sum(upstream.was_ready for upstream in self.all) > 1

    def has_ready(self, within: float = 0.0) -> bool:
        """One is ready, or was within so many seconds."""
        if any(upstream.is_ready for upstream in self.all):
            return True
        return asyncio.get_running_loop().time() - self._ready_until < within

    async def choose(self, failed: Collection[Upstream]) -> Upstream:
        """The ready upstream with the fewest requests, one that failed last. Waits until one is ready."""
        while not self.has_ready():
            await self._changed.wait()
        ready = (upstream for upstream in self.all if upstream.is_ready)
        return min(ready, key=lambda upstream: (upstream in failed, upstream.n_open))

    def tell_change(self) -> None:
        """An upstream has become ready, or is no longer."""
        self._ready_until = asyncio.get_running_loop().time()
        self._changed.set()
        self._changed = asyncio.Event()

    def add(self, address: str, *, is_child: bool = False) -> Upstream | None:
        """A new upstream; None if there are too many, or it is known."""
        if address in self._by_address or len(self._by_address) >= MAX_UPSTREAMS:
            return None
        upstream = self._by_address[address] = Upstream(address, self, is_child=is_child)
        return upstream

    def drop(self, address: str) -> None:
        """An upstream is gone. Its requests end with their connections."""
        task = asyncio.get_running_loop().create_task(self._by_address.pop(address).end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY)
            await self.resolve()

    async def resolve(self) -> None:
        """Adds and drops upstreams as the names say. Of a name that cannot be resolved now, all stay."""
        loop = asyncio.get_running_loop()
        found: dict[str, None] = {address: None for address in self._addresses if not _has_name(address)}
        for name in filter(_has_name, self._addresses):
            address = Address(name)
            try:
                infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            except OSError as error:
                self._log.warning("upstream", message=f"{name}: {error.strerror}")
                return
            found |= {_joined(*info[4][:2]): None for info in infos}
        if len(found) > MAX_UPSTREAMS:
            self._log.warning("upstream", message=f"{len(found)} addresses, of which {MAX_UPSTREAMS} are used")
        for gone in [
            each for each, upstream in self._by_address.items() if each not in found and not upstream.is_child
        ]:
            self.drop(gone)
        for each in found:
            self.add(each)


class _Patient(BaseConnector):
    """Opens few connections at a time: a server has a short queue for new ones, and none beyond it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opening = asyncio.Semaphore(MAX_OPENING)

    async def _create_connection(self, *arguments: Any) -> Any:
        async with self._opening:
            return await super()._create_connection(*arguments)


class _Tcp(_Patient, TCPConnector):
    pass


class _Unix(_Patient, UnixConnector):
    pass


def _session(address: str) -> ClientSession:
    connector: BaseConnector
    if _is_path(address):
        path = address.removeprefix(UNIX).replace(ABSTRACT, "\0")
        connector = _Unix(path, limit=0, keepalive_timeout=IDLE_SECONDS)
    else:
        connector = _Tcp(limit=0, keepalive_timeout=IDLE_SECONDS)
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BYTES,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )


def _is_path(address: str) -> bool:
    """A Unix socket."""
    return address.startswith((UNIX, ABSTRACT))


def _has_name(address: str) -> bool:
    """Whether the address has a host name, which must be resolved."""
    if _is_path(address):
        return False
    try:
        ip_address(Address(address).host)
    except ValueError:
        return True
    return False


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
