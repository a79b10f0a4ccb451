"""Reads the body of a request: within the limits, as strict JSON, and on a worker if it is large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from imp_service.api.content_parts import IMAGE_WORDS
from imp_service.api.errors import invalid
from imp_service.core.reserve import LARGE_TEXT_BYTES
from imp_service.http_api.guard import too_large
from imp_service.http_api.http_call import HttpCall
from imp_service.serving.server_state import ServerState
from imp_service.text.strict_json import parse_strict_json

T = TypeVar("T")
PATH = "body"
MAX_DEPTH = 64


async def read_body(
    call: HttpCall,
    state: ServerState,
    read: Callable[[Mapping[str, Any]], T],
    *,
    takes_images: bool = False,
) -> T:
    """The result of `read` on the body's object. Raises FieldsInvalid, also if the body is not a JSON object.

    `takes_images`: it may have images, and only then be larger than a message.
    """
    most, without_images = state.message_limit(has_images=takes_images), state.message_limit()
    text_bytes = without_images.n_bytes
    with state.receiving.message() as message, state.waiting_images.message(text_bytes) as images:

        def will_have(n_bytes: int) -> None:
            message.grow(min(n_bytes, text_bytes))
            images.grow(n_bytes)

        content = await call.exchange.read_body(most, will_have)
        call.has_read_body = True
        call.n_request_bytes = len(content)

        def parse() -> T:
            if len(content) > text_bytes and not any(word.encode() in content for word in IMAGE_WORDS):
                raise too_large(without_images)
            return read(parse_object(content, most.n_bytes))

        if len(content) <= LARGE_TEXT_BYTES:
            return await state.workers.run_light_if_large(parse, len(content))
        # It may take as much memory as tokenizing does, so a large body takes its turn with the large texts.
        return await state.workers.run(parse, min(len(content), text_bytes))


def parse_object(content: bytes | bytearray, max_bytes: int) -> Mapping[str, Any]:
    """The JSON object in a body. Raises FieldsInvalid."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise invalid(PATH, f"not UTF-8 at byte {error.start}") from None
    value = parse_strict_json(text, PATH, max_bytes=max_bytes, max_depth=MAX_DEPTH)
    if not isinstance(value, dict):
        raise invalid(PATH, "expected an object")
    return value
