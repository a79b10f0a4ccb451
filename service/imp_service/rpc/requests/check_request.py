"""The one judgement of a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from itertools import islice
from typing import Any

from imp_service.generation.validate import Violation, refuse
from imp_service.rpc.requests.field_rules import findings
from imp_service.rpc.requests.terms import Terms
from imp_service.serving.host import Host

# Stages after the fields, first to answer first; other reasons come last.
_STAGES = ("MODEL_NOT_SERVED",)
# Far more than a status can hold.
MAX_FINDINGS = 1000
# A larger request takes longer than a step of the event loop may.
MAX_INLINE_BYTES = 16 * 1024


def check_request(request: Any, terms: Terms) -> None:
    """Raises FieldsInvalid with every violation, else the first of the refusals that a later stage has."""
    found = list(islice(findings(request, "", terms), MAX_FINDINGS))
    if not found:
        return
    refuse(each for each in found if isinstance(each, Violation))
    refusals = [each for each in found if not isinstance(each, Violation)]
    raise min(refusals, key=lambda refusal: refusal.reason not in _STAGES)


async def checked(request: Any, n_bytes: int, host: Host) -> Terms:
    """The same, off the event loop where the request is large; what the server's terms are."""
    terms = Terms.of(host.model, host.settings)
    if n_bytes <= MAX_INLINE_BYTES:
        check_request(request, terms)
    else:
        await host.workers.look(lambda: check_request(request, terms), n_bytes)
    return terms


def checked_without_model(request: Any, host: Host) -> None:
    """For methods that answer before there is a model; their requests are small."""
    check_request(request, Terms(host.settings))
