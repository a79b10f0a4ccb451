"""Checks a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from itertools import islice
from typing import Any

from imp_service.generation.validate import Violation, refuse
from imp_service.rpc.requests.field_rules import findings
from imp_service.serving.host import Host
from imp_service.serving.served_model import ServedModel

# If no field is invalid, this reason comes before the others.
_FIRST_REASON = "MODEL_NOT_SERVED"
# Far more than fit a status.
MAX_FINDINGS = 1000
# Checking a larger request takes too long for the event loop.
MAX_INLINE_BYTES = 16 * 1024


def check_request(request: Any, served: ServedModel) -> None:
    """Raises FieldsInvalid with every violation. Without one, raises the first refusal, of the model's name first."""
    found = list(islice(findings(request, "", served), MAX_FINDINGS))
    if not found:
        return
    refuse(each for each in found if isinstance(each, Violation))
    refusals = [each for each in found if not isinstance(each, Violation)]
    raise min(refusals, key=lambda refusal: refusal.reason != _FIRST_REASON)


async def checked(request: Any, n_bytes: int, host: Host) -> ServedModel:
    """The same, on a worker if the request is large. Returns the values that it was checked against."""
    served = ServedModel.of(host.model, host.settings)
    if n_bytes <= MAX_INLINE_BYTES:
        check_request(request, served)
    else:
        await host.workers.run_light(lambda: check_request(request, served), n_bytes)
    return served


def checked_without_model(request: Any, host: Host) -> None:
    """The same for methods that need no model. Their requests are small."""
    check_request(request, ServedModel(host.settings))
