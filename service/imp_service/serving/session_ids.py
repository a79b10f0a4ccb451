"""Names that the server gives to sessions: nobody can guess one, and each tells which start of which server made it."""

from __future__ import annotations

import re
import secrets

RANDOM_BYTES = 16

_ISSUED = re.compile(rf"imp-(.+)-[0-9a-f]{{{2 * RANDOM_BYTES}}}")


def new_session_id(instance_id: str) -> str:
    """A name that no other session has: 128 random bits after the instance."""
    return f"imp-{instance_id}-{secrets.token_hex(RANDOM_BYTES)}"


def instance_of(session_id: str) -> str | None:
    """The instance that issued a name; None where a caller chose it."""
    match = _ISSUED.fullmatch(session_id)
    return None if match is None else match[1]
