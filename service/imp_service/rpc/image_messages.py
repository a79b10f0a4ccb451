"""Which messages of imp.v1 have images, and which may have them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from imp_service.pb import types_pb2

_IMAGE: Any = types_pb2.Image.DESCRIPTOR


@cache
def may_have_images(kind: Descriptor) -> bool:
    """Whether a message of this kind can have an image. No kind contains itself."""
    if kind is _IMAGE:
        return True
    return any(field.message_type is not None and may_have_images(field.message_type) for field in kind.fields)


def has_images(message: Message) -> bool:
    """Whether a message has an image."""
    if message.DESCRIPTOR is _IMAGE:
        return True
    return any(
        any(map(has_images, _messages(field, value)))
        for field, value in message.ListFields()
        if field.message_type is not None and may_have_images(field.message_type)
    )


def _messages(field: Any, value: Any) -> Iterable[Message]:
    return value if field.is_repeated else (value,)
