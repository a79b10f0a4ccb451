"""One open session as the server keeps it: its owner, its id, its expiry and its last reply."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from imp_service.generation import CacheOptions, EngineSession

RANDOM_BYTES = 16

_ISSUED = re.compile(rf"imp-(.+)-[0-9a-f]{{{2 * RANDOM_BYTES}}}")


def new_session_id(instance_id: str) -> str:
    """A name that no other session has: 128 random bits after the instance."""
    return f"imp-{instance_id}-{secrets.token_hex(RANDOM_BYTES)}"


def instance_of(session_id: str) -> str | None:
    """The instance that issued a name; None where a caller chose it."""
    match = _ISSUED.fullmatch(session_id)
    return None if match is None else match[1]


# Whose it is, and its name: what another tenant calls by the same name is another session.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The answer to what the session was last extended by, for a caller that lost it."""

    # Of the whole request: tokens, options and position.
    digest: bytes
    reply: object


@dataclass(slots=True, eq=False)
class HeldSession:
    """Touched on the event loop's thread only."""

    key: Key
    session: EngineSession
    cache: CacheOptions
    ttl: float  # seconds
    used_at: float  # by the host's clock
    # A call is at work on it: it does not expire, and other calls are refused.
    is_busy: bool = False
    is_open: bool = True
    # Nothing was evaluated yet: where that fails the session is gone again.
    is_new: bool = True
    stored: StoredReply | None = None
    # Tokens that it held when ForkSession made it.
    forked_at: int | None = None
    # When the expiry looks at it next.
    wake_at: float | None = None

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.key[0]

    @property
    def session_id(self) -> str:
        """Its name."""
        return self.key[1]

    @property
    def position(self) -> int:
        """Tokens held."""
        return self.session.position

    def reply_to(self, digest: bytes | None) -> object | None:
        """The stored reply, where a request of this digest is what the session was last extended by."""
        return self.stored.reply if self.stored is not None and self.stored.digest == digest else None

    @property
    def expires_at(self) -> float:
        """When it is freed, unless it is used before."""
        return self.used_at + self.ttl
