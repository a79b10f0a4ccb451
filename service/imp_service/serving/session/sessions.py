"""The open sessions of one server: their owners, their expiry, and which of them a call uses.

A session belongs to its tenant. For another tenant the id is unknown, with the same error as any unknown id.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from imp_service.api.options import DEFAULT_CACHE, CacheOptions, SamplingOptions
from imp_service.config.settings import SessionsSettings
from imp_service.core import EngineClient, Event, FailedEvent
from imp_service.generation import EngineSession, ModelRuntime
from imp_service.serving.lifecycle import loading
from imp_service.serving.refusal import Refusal
from imp_service.serving.session.expiry import SessionExpiry, seconds_until_blocks, seconds_until_places
from imp_service.serving.session.held_session import HeldSession, Key, instance_of, new_session_id

# The number of expired sessions whose ids are kept: calls get SESSION_EXPIRED for these, SESSION_NOT_FOUND for older.
MAX_EXPIRED_NAMES = 4096


@dataclass(frozen=True, slots=True)
class Opening:
    """The options of a new session."""

    sampling: SamplingOptions | None = None
    payer: str = ""
    priority: int = 0
    cache: CacheOptions = DEFAULT_CACHE
    ttl: float | None = None  # seconds; the server's setting where None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts about a session for an operator. They contain no token."""

    session_id: str
    tenant: str
    position: int
    idle_seconds: float
    # Until it expires; None while a call uses it.
    seconds_left: float | None


class Sessions:
    """On the event loop's thread only. Sessions are opened on the model given to serve()."""

    def __init__(self, settings: SessionsSettings, instance_id: str, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._instance_id = instance_id
        self._clock = clock
        self._held: dict[Key, HeldSession] = {}
        self._by_sequence: dict[int, HeldSession] = {}
        self._per_tenant: Counter[str] = Counter()
        self._expired: OrderedDict[Key, None] = OrderedDict()
        self._expiry = SessionExpiry(clock, self._expire)
        self._model: ModelRuntime | None = None
        # Sessions that are closed here, but not yet in the engine.
        self._closing: set[asyncio.Future[None]] = set()

    def follow(self, settings: SessionsSettings) -> None:
        """Applies new settings. Open sessions keep their ttl."""
        self._settings = settings

    def __len__(self) -> int:
        return len(self._held)

    def serve(self, model: ModelRuntime) -> None:
        """Opens sessions on this model from now on, and handles the events of those that its engine ends by itself."""
        self._model = model
        model.client.set_unrequested_handler(self._on_engine_event)

    def find(self, tenant: str, session_id: str) -> HeldSession | None:
        """An open session; None if there is none of that id, for a reason that why_missing() gives."""
        held = self._held.get((tenant, session_id))
        if held is not None and not held.is_busy and held.expires_at <= self._clock():
            self._expire(held)
            return None
        return held

    def take(self, tenant: str, session_id: str) -> HeldSession:
        """The session for a call, until leave(). Raises SESSION_BUSY, or the reason why there is no such session."""
        held = self.find(tenant, session_id)
        if held is None:
            raise self.why_missing(tenant, session_id)
        if held.is_busy:
            raise Refusal("SESSION_BUSY", "another call is using the session")
        held.is_busy = True
        return held

    def leave(self, held: HeldSession) -> None:
        """Ends a call's use of a session. Its ttl restarts."""
        held.is_busy = False
        held.used_at = self._clock()
        if held.is_open:
            self._expiry.watch(held)

    def abandon(self, held: HeldSession) -> None:
        """Ends a call's use of a session after a failure. A session that was opened for the call is closed."""
        if held.is_new:
            self.close(held)
        self.leave(held)

    @contextmanager
    def use(self, tenant: str, session_id: str) -> Iterator[HeldSession]:
        """A session for a generation. It replaces the session's stored reply."""
        held = self.take(tenant, session_id)
        held.stored = None
        try:
            yield held
        finally:
            self.leave(held)

    async def open(self, tenant: str, session_id: str, opening: Opening) -> HeldSession:
        """A new session, busy until leave(). An empty id means a new one. Raises if there are too many sessions."""
        await self._require_place(tenant)
        key = (tenant, session_id or new_session_id(self._instance_id))
        if key in self._held:
            raise Refusal("SESSION_BUSY", "another call is opening the session")
        session = EngineSession.open(
            self._served,
            opening.sampling,
            tenant=tenant,
            payer=opening.payer,
            priority=opening.priority,
            cache=opening.cache,
        )
        return self._hold(key, session, opening.cache, self.ttl_of(opening.ttl))

    async def reserve_fork(self, parent: HeldSession, session_id: str, position: int) -> HeldSession:
        """A copy of `parent` that the engine has not made yet; busy until leave()."""
        await self._require_place(parent.tenant)
        key = (parent.tenant, session_id or new_session_id(self._instance_id))
        if key in self._held:
            raise Refusal("SESSION_BUSY", "another call is creating the session")
        copy = parent.session.forked(self.client.next_sequence(), position)
        return self._hold(key, copy, parent.cache, parent.ttl)

    def close(self, held: HeldSession) -> None:
        """Closes a session, and ends the call that uses it. A second call does nothing."""
        if not held.is_open:
            return
        self._drop(held)
        client = self.client
        if client.is_closed:
            return
        closed = asyncio.get_running_loop().create_future()
        self._closing.add(closed)

        def on_closed(_: Event) -> None:
            client.forget(ticket)
            self._closing.discard(closed)
            closed.set_result(None)

        ticket = client.expect(on_closed)
        held.session.close(ticket)

    async def closed(self) -> None:
        """Waits until the engine has closed the sessions that are closed here."""
        if self._closing:
            await asyncio.wait(set(self._closing))

    def seconds_until_blocks(self, n_blocks: int) -> float | None:
        """Seconds until idle sessions have freed `n_blocks` blocks; None while requests run, which may end earlier."""
        if self.client.engine.stats().running:
            return None
        return seconds_until_blocks(self.held(), n_blocks, self._served.config.settings.kv.block_tokens, self._clock())

    def held(self) -> list[HeldSession]:
        """The open sessions."""
        return list(self._held.values())

    def close_all(self) -> None:
        """Closes every session and stops the timer."""
        for held in self.held():
            self.close(held)
        self._expiry.close()

    def expire_due(self) -> None:
        """Ends expired sessions now, without waiting for the timer."""
        self._expiry.expire_due()

    def facts(self) -> list[SessionFacts]:
        """The open sessions for an operator, longest unused first."""
        now = self._clock()
        return [
            SessionFacts(
                held.session_id,
                held.tenant,
                held.position,
                now - held.used_at,
                None if held.is_busy else held.expires_at - now,
            )
            for held in sorted(self._held.values(), key=lambda held: held.used_at)
        ]

    def ttl_of(self, wanted: float | None) -> float:
        """Seconds until an unused session expires: what the request asks for, or the setting."""
        return self._settings.ttl.total_seconds() if wanted is None else wanted

    def why_missing(self, tenant: str, session_id: str) -> Refusal:
        """The error for an id without a session: it has expired, is of another server process, or is unknown."""
        details = {"session_id": session_id}
        if (tenant, session_id) in self._expired:
            return Refusal(
                "SESSION_EXPIRED", "the session was not used for its ttl, or its blocks were needed", details
            )
        if self.is_of_another_instance(session_id):
            details["instance_id"] = instance_of(session_id) or ""
            return Refusal(
                "SESSION_LOST", "the session belongs to another instance, or to a start before this one", details
            )
        return Refusal("SESSION_NOT_FOUND", "there is no such session", details)

    def is_of_another_instance(self, session_id: str) -> bool:
        """Whether another server process issued the id."""
        return instance_of(session_id) not in (None, self._instance_id)

    @property
    def client(self) -> EngineClient:
        """The engine that holds the sessions."""
        return self._served.client

    @property
    def _served(self) -> ModelRuntime:
        if self._model is None:
            raise loading()
        return self._model

    async def _require_place(self, tenant: str) -> None:
        """Raises if there are too many sessions for one more. Waits for sessions that are being closed."""
        most, own = self._settings.max, self._settings.per_tenant
        if len(self._held) >= most or (tenant and self._per_tenant[tenant] >= own):
            self.expire_due()
        while self._closing and len(self._held) + len(self._closing) >= most > len(self._held):
            await asyncio.wait(set(self._closing), return_when=asyncio.FIRST_COMPLETED)
        if len(self._held) >= most:
            raise Refusal(
                "SESSIONS_FULL",
                f"{len(self._held)} sessions are open, as many as sessions.max = {most} allows",
                retry_after=seconds_until_places(self.held(), self._clock()),
            )
        if tenant and self._per_tenant[tenant] >= own:
            raise Refusal(
                "TENANT_LIMIT",
                f"the tenant has as many sessions as sessions.per_tenant = {own} allows",
                retry_after=seconds_until_places(
                    (held for held in self.held() if held.tenant == tenant), self._clock()
                ),
            )

    def _hold(self, key: Key, session: EngineSession, cache: CacheOptions, ttl: float) -> HeldSession:
        held = HeldSession(key, session, cache, ttl, self._clock(), is_busy=True)
        self._expired.pop(key, None)
        self._held[key] = held
        self._by_sequence[session.sequence] = held
        self._per_tenant[key[0]] += 1
        self._expiry.watch(held)
        return held

    def _drop(self, held: HeldSession) -> None:
        held.is_open = False
        held.stored = None
        del self._held[held.key]
        del self._by_sequence[held.session.sequence]
        self._per_tenant[held.tenant] -= 1
        if not self._per_tenant[held.tenant]:
            del self._per_tenant[held.tenant]
        self._expiry.forget(held)

    def _expire(self, held: HeldSession) -> None:
        self.close(held)
        self._remember_expired(held)

    def _remember_expired(self, held: HeldSession) -> None:
        self._expired[held.key] = None
        if len(self._expired) > MAX_EXPIRED_NAMES:
            self._expired.popitem(last=False)

    def _on_engine_event(self, event: Event) -> None:
        """The engine has ended an idle session because it needed its blocks."""
        if isinstance(event, FailedEvent) and event.reason == "SESSION_EXPIRED":
            held = self._by_sequence.get(event.sequence)
            if held is not None:
                self._drop(held)
                self._remember_expired(held)
