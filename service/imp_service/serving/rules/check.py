"""Checks a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from imp_service.api.errors import Violation, refuse
from imp_service.api.rules import Missing
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState

# A refusal is raised only if there is no violation.
Finding = Violation | Missing | Refusal
T = TypeVar("T")

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
    refusals = [_refusal_of(each) for each in found if not isinstance(each, Violation)]
    raise min(refusals, key=lambda refusal: refusal.reason != _FIRST_REASON)


def renamed(found: Finding, rename: Callable[[str], str]) -> Finding:
    """The same with a caller's name of the field."""
    if isinstance(found, Violation | Missing):
        return replace(found, path=rename(found.path))
    path = found.details.get("feature")
    if path is None:
        return found
    theirs = rename(path)
    words = found.message.replace(f"{path}:", f"{theirs}:", 1)
    return Refusal(found.reason, words, {**found.details, "feature": theirs})


def _refusal_of(found: Missing | Refusal) -> Refusal:
    if isinstance(found, Refusal):
        return found
    return Refusal("FEATURE_DISABLED", f"{found.path}: {found.message}", {"feature": found.path})


async def checked(check: Callable[[ServedModel], T], n_bytes: int, state: ServerState) -> tuple[T, ServedModel]:
    """Runs a check, on a worker if the request is large. Returns its result, and the values that it compared with."""
    served = state.served
    return await state.workers.run_light_if_large(lambda: check(served), n_bytes), served
