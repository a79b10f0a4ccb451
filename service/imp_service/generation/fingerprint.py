"""What decides the tokens of a model here, by name, and one digest of it: the `server` of an origin.

Servers with equal digests go on with each other's streams.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.api.resume import SERVER_DIGITS, different_parts

# Of a digest, in hexadecimal.
DIGITS = SERVER_DIGITS
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest has 16 hexadecimal digits. The parts are for people who compare two servers."""

    digest: str
    parts: Mapping[str, str]

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Fingerprint:
        """That of these parts, in any order."""
        ordered = dict(sorted(parts.items()))
        return cls(digest_of(json.dumps(ordered).encode()), ordered)

    def difference(self, other: Mapping[str, str]) -> list[str]:
        """The names of the parts that others have with another value, or not at all."""
        return different_parts(self.parts, other)


def digest_of(data: bytes) -> str:
    """The beginning of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:DIGITS]
