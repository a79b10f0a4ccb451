"""Tells whether a request is the exact repeat of another: same position, tokens and options."""

from __future__ import annotations

from hashlib import blake2b

from google.protobuf.message import Message

DIGEST_BYTES = 16


def request_digest(request: Message) -> bytes:
    """Equal for equal messages of one kind, and for no others."""
    content = request.SerializeToString(deterministic=True)
    return blake2b(content, digest_size=DIGEST_BYTES, person=request.DESCRIPTOR.name.encode()[:16]).digest()
