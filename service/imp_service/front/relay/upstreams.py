"""The servers behind a front: which there are, and which of them is asked next."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import cache

from imp_service.front.relay.connections import Trust, trust_in
from imp_service.front.relay.names import Place
from imp_service.front.relay.upstream import Common, Upstream
from imp_service.telemetry.log import Log

# Trusts the authorities of the system.
system_trust = cache(lambda: trust_in(None))
RESOLVE_EVERY = 5.0
MAX_UPSTREAMS = 64


class Child:
    """An engine process and those that follow it: each of them is an upstream."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._all = upstreams
        self._upstream: Upstream | None = None

    def started(self, address: str) -> None:
        """There is a process at this address, where no other has been."""
        self._upstream = self._all.add(Place(address), is_child=True)

    def died(self, *, is_own_fault: bool) -> None:
        """The process has ended. What it did can be the cause, or is not."""
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            self._all.drop(upstream.place)
            self._all.on_death(upstream, is_own_fault)


class Upstreams:
    """All of them. A host name stands for each of its addresses."""

    def __init__(self, addresses: Sequence[str] = (), *, log: Log, trust: Trust | None = None) -> None:
        """`trust`: the authorities that servers with TLS need; those of the system if it is None."""
        self._common = Common(f"1.1 imp-{secrets.token_hex(8)}", self._tell_change, trust or system_trust, log)
        # Where the servers of each setting are, or were when its name could be resolved.
        self._found: dict[Place, Sequence[Place]] = {
            place: () if place.has_name else (place,) for place in map(Place.of, addresses)
        }
        self._log = log
        # Called when a child has died, with whether that is its own fault.
        self.on_death: Callable[[Upstream, bool], None] = lambda upstream, is_own_fault: None
        # One address may have servers of several names, with TLS and without.
        self._by_place: dict[Place, Upstream] = {}
        self._changed = asyncio.Event()
        self._resolving: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        # When the last one that was ready ceased to be.
        self._ready_until = -1e9

    async def start(self) -> None:
        """Finds the upstreams of the addresses, and watches them."""
        for place in self._found:
            if not place.has_name:
                self.add(place)
        if any(place.has_name for place in self._found):
            await self.resolve()
            self._resolving = asyncio.get_running_loop().create_task(self._follow(), name="resolve")

    async def stop(self) -> None:
        """Ends all."""
        if self._resolving is not None:
            self._resolving.cancel()
        for upstream in [*self.all]:
            self.drop(upstream.place)
            for flight in [*upstream.flights]:
                flight.cut()
        if self._ending:
            await asyncio.wait(self._ending)

    def add_child(self) -> Child:
        """An engine process that a supervisor runs."""
        return Child(self)

    @property
    def via(self) -> str:
        """Names this front."""
        return self._common.via

    @property
    def all(self) -> Collection[Upstream]:
        """Those that are known now."""
        return self._by_place.values()

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

    def add(self, place: Place, *, is_child: bool = False) -> Upstream | None:
        """A new upstream; None if there are too many, or it is known."""
        if place in self._by_place or len(self._by_place) >= MAX_UPSTREAMS:
            return None
        upstream = self._by_place[place] = Upstream(place, self._common, is_child=is_child)
        return upstream

    def drop(self, place: Place) -> None:
        """An upstream is gone. Its requests end with their connections."""
        task = asyncio.get_running_loop().create_task(self._by_place.pop(place).end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _tell_change(self) -> None:
        """An upstream has become ready, or is no longer."""
        self._ready_until = asyncio.get_running_loop().time()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY)
            await self.resolve()

    async def resolve(self) -> None:
        """Adds and drops upstreams as the names say. Of a name that cannot be resolved now, all stay."""
        for place in self._found:
            try:
                if place.has_name:
                    self._found[place] = await place.resolved()
            except OSError as error:
                self._log.warning("upstream", message=f"{place.address}: {error.strerror}")
        found = dict.fromkeys(one for each in self._found.values() for one in each)
        if len(found) > MAX_UPSTREAMS:
            self._log.warning("upstream", message=f"{len(found)} addresses, of which {MAX_UPSTREAMS} are used")
        for gone in [each for each, upstream in self._by_place.items() if each not in found and not upstream.is_child]:
            self.drop(gone)
        for place in found:
            self.add(place)
