"""Reads the body of a request by a table of fields, and refuses everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from imp_service.http_api.bodies import read_body
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.rows import Table
from imp_service.serving.model_names import require_served
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState

T = TypeVar("T")


async def read_fields(
    call: HttpCall,
    state: ServerState,
    table: Table,
    read: Callable[[Reading, ServedModel, Caller], T],
    *,
    takes_images: bool = False,
) -> tuple[Reading, T]:
    """What `read` makes of the fields. Raises FieldsInvalid with everything that is wrong."""
    served, caller = state.served, Caller(call.priority, call.tenant)
    ignores_unknown = state.settings.http.unknown_fields == "ignore"

    def read_checked(body: Mapping[str, Any]) -> tuple[Reading, T]:
        reading = Reading(body, table, ignores_unknown=ignores_unknown)
        found = read(reading, served, caller)
        reading.refuse()
        require_served(reading.get("model"), served.names)
        return reading, found

    reading, found = await read_body(call, state, read_checked, takes_images=takes_images)
    call.ignore(reading.ignored)
    return reading, found
