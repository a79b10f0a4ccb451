"""Checks a message before any work."""

from __future__ import annotations

from typing import Any

from imp_service.rpc.requests.field_rules import findings
from imp_service.serving.host import Host
from imp_service.serving.rules import check
from imp_service.serving.served_model import ServedModel


def check_request(request: Any, served: ServedModel) -> None:
    """Raises FieldsInvalid or the first refusal."""
    check.refuse_findings(findings(request, "", served))


async def checked(request: Any, n_bytes: int, host: Host) -> ServedModel:
    """The same, on a worker if the request is large. Returns the values that it was checked against."""
    return await check.checked(lambda served: check_request(request, served), n_bytes, host)


def checked_without_model(request: Any, host: Host) -> None:
    """The same for methods that need no model. Their requests are small."""
    check_request(request, ServedModel(host.settings))
