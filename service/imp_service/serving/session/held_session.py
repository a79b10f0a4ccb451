"""One open session as the server keeps it: its owner, its id, its expiry and its last reply."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from imp_service.api.options import CacheOptions
from imp_service.generation import EngineSession

RANDOM_BYTES = 16

_ISSUED = re.compile(rf"imp-(.+)-[0-9a-f]{{{2 * RANDOM_BYTES}}}")


def new_session_id(instance_id: str) -> str:
    """An id that nobody can guess: 128 random bits after the id of this start of the server."""
    return f"imp-{instance_id}-{secrets.token_hex(RANDOM_BYTES)}"


def instance_of(session_id: str) -> str | None:
    """The start of a server that issued an id; None if a caller chose the id."""
    match = _ISSUED.fullmatch(session_id)
    return None if match is None else match[1]


# Tenant and session id. Two tenants may use the same id for different sessions.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The reply to the last request that extended the session, for a caller that lost it."""

    # The digest of the request: tokens, options and position.
    digest: bytes
    reply: object


@dataclass(slots=True, eq=False)
class HeldSession:
    """Used on the event loop's thread only."""

    key: Key
    session: EngineSession
    cache: CacheOptions
    ttl: float  # seconds
    used_at: float  # by the server's clock
    # A call uses it: it does not expire, and other calls are refused.
    is_busy: bool = False
    is_open: bool = True
    # Nothing was evaluated yet. If the first evaluation fails, the session is closed.
    is_new: bool = True
    stored: StoredReply | None = None
    # Tokens that it held when ForkSession made it.
    forked_at: int | None = None
    # When the expiry timer checks it next.
    wake_at: float | None = None

    @property
    def tenant(self) -> str:
        """Its owner."""
        return self.key[0]

    @property
    def session_id(self) -> str:
        """Its id, unique within the tenant."""
        return self.key[1]

    @property
    def position(self) -> int:
        """Tokens held."""
        return self.session.position

    def reply_to(self, digest: bytes | None) -> object | None:
        """The stored reply, if the last request that extended the session has this digest."""
        return self.stored.reply if self.stored is not None and self.stored.digest == digest else None

    @property
    def expires_at(self) -> float:
        """When it expires if it is not used before."""
        return self.used_at + self.ttl
