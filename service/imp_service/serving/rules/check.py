"""Checks a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from imp_service.api.errors import Violation, refuse
from imp_service.serving.host import Host
from imp_service.serving.rules.kinds import Finding
from imp_service.serving.served_model import ServedModel

# If no field is invalid, this reason comes before the others.
_FIRST_REASON = "MODEL_NOT_SERVED"
# Far more than a failure has room for.
MAX_FINDINGS = 1000


def refuse_findings(findings: Iterable[Finding]) -> None:
    """Raises FieldsInvalid with every violation. Without one, raises the first refusal, of the model's name first."""
    found = list(islice(findings, MAX_FINDINGS))
    if not found:
        return
    refuse(each for each in found if isinstance(each, Violation))
    refusals = [each for each in found if not isinstance(each, Violation)]
    raise min(refusals, key=lambda refusal: refusal.reason != _FIRST_REASON)


async def checked(check: Callable[[ServedModel], None], n_bytes: int, host: Host) -> ServedModel:
    """Runs a check, on a worker if the request is large. Returns the values that the request was checked against."""
    served = host.served
    await host.workers.run_light_if_large(lambda: check(served), n_bytes)
    return served
