"""Reads the body of a request: within the limits, as strict JSON, and on a worker if it is large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from imp_service.api.errors import invalid
from imp_service.core.reserve import LARGE_TEXT_BYTES
from imp_service.http_api.http_call import HttpCall
from imp_service.serving.server_state import ServerState
from imp_service.text.strict_json import parse_strict_json

T = TypeVar("T")
PATH = "body"
MAX_DEPTH = 64


async def read_body(call: HttpCall, state: ServerState, read: Callable[[Mapping[str, Any]], T]) -> T:
    """The result of `read` on the body's object. Raises FieldsInvalid, also if the body is not a JSON object."""
    most = state.settings.limits.max_message_bytes
    with state.receiving.message() as message:
        content = await call.exchange.read_body(most, message)
        call.has_read_body = True
        call.n_request_bytes = len(content)

        def parse() -> T:
            return read(parse_object(content, most))

        if len(content) <= LARGE_TEXT_BYTES:
            return await state.workers.run_light_if_large(parse, len(content))
        # It may take as much memory as tokenizing does, so a large body takes its turn with the large texts.
        return await state.workers.run(parse, len(content))


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
