"""The one judgement of a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from itertools import islice
from typing import Any

from imp_service.generation.validate import Violation, refuse
from imp_service.rpc.field_rules import findings
from imp_service.rpc.terms import Terms

# Stages after the fields, first to answer first; other reasons come last.
_STAGES = ("MODEL_NOT_SERVED",)
# Far more than a status can hold.
MAX_FINDINGS = 1000


def check_request(request: Any, terms: Terms) -> None:
    """Raises FieldsInvalid with every violation, else the first of the refusals that a later stage has."""
    found = list(islice(findings(request, "", terms), MAX_FINDINGS))
    if not found:
        return
    refuse(each for each in found if isinstance(each, Violation))
    refusals = [each for each in found if not isinstance(each, Violation)]
    raise min(refusals, key=lambda refusal: refusal.reason not in _STAGES)
