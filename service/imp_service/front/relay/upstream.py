"""One server behind a front: whether it is ready, and which requests it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from imp_service.front.relay.connections import FAILURES, TLS_FAILURES, Connections, Trust
from imp_service.front.relay.names import Place
from imp_service.telemetry.log import Log

# Seconds.
PROBE_EVERY = 1.0
PROBE_WAITING_EVERY = 0.05
PROBE_TIMEOUT = 1.0
# A stream without a byte for so long ends if its server does not answer so many probes either.
SILENT_SECONDS = 5.0
MAX_UNANSWERED = 3
READY, ALIVE = "/health", "/health/live"


class Flight:
    """One request that is on its way to an upstream, or whose response is."""

    def __init__(self, upstream: Upstream, alarm: asyncio.Timeout) -> None:
        self.upstream = upstream
        self._alarm = alarm
        # It was cut because the upstream reads the request too slowly.
        self.is_read_slowly = False
        self._loop = asyncio.get_running_loop()
        self.last_byte = self._loop.time()

    def heard(self) -> None:
        """A part of the response has come."""
        self.last_byte = self._loop.time()

    def cut(self) -> None:
        """Ends it, unless it is over: its task gets a TimeoutError."""
        if self in self.upstream.flights and not self._alarm.expired():
            self._alarm.reschedule(0.0)

    @contextlib.contextmanager
    def reading(self, seconds: float) -> Iterator[None]:
        """Within the block, the upstream reads a part of the request. It is cut after so many seconds."""
        timer = self._loop.call_later(max(seconds, 0.0), self._cut_slow)
        try:
            yield
        finally:
            timer.cancel()

    def _cut_slow(self) -> None:
        self.is_read_slowly = True
        self.cut()


@dataclass(frozen=True, slots=True)
class Common:
    """What all upstreams of a front share."""

    # Names the front to others, and to itself.
    via: str
    # Called when one becomes ready, or ceases to be.
    on_change: Callable[[], None]
    trust: Trust
    log: Log


class Upstream:
    """One place. Its task asks whether it is ready."""

    def __init__(self, place: Place, common: Common, *, is_child: bool = False) -> None:
        """`is_child`: a supervisor tells when its process ends."""
        self.place, self.address = place, place.address
        self.is_child = is_child
        self.has_ended = False
        self.is_ready = False
        self.was_ready = False
        self.flights: set[Flight] = set()
        self._n_unanswered = 0
        self._common = common
        # What it answered last.
        self._said = ""
        self.connections = Connections(place, common.trust)
        self._asked = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._watch(), name=f"upstream {place.address}")

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
            self._common.on_change()

    async def end(self) -> None:
        """The upstream is gone. Its requests end with their connections, or are cut when it is silent."""
        self.has_ended = True
        self.set_ready(is_ready=False)
        self._task.cancel()
        await asyncio.wait((self._task,))
        while self.flights:
            await asyncio.sleep(PROBE_WAITING_EVERY)
            await self._cut_silent()
        await self.connections.close()

    async def _watch(self) -> None:
        told, log = "", self._common.log
        while True:
            self._asked.clear()
            self.set_ready(is_ready=_is_ready(await self._ask(READY)))
            if self._said != told and not self.is_child:  # of a child, the supervisor tells more
                told = self._said
                (log.info if self.is_ready else log.warning)("upstream", message=f"{self.address}: {told}")
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
                response = await self.connections.send("GET", path, [("via", self._common.via)], None)
                async with response:
                    self._said = "ready" if _is_ready(response.status) else f"away: status {response.status}"
                    return response.status
        except (*FAILURES, TimeoutError) as error:
            self._said = f"away: {error}" if isinstance(error, TLS_FAILURES) else "away: no answer"
            return None


def _is_ready(status: int | None) -> bool:
    """With 421, a server refuses the name by which it is called: it would refuse each call."""
    return status is not None and status < 500 and status != HTTPStatus.MISDIRECTED_REQUEST
