"""Checks a request before any work: all its fields at once, then the model's name, then features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from imp_service.core import InvalidArgument
from imp_service.generation.validate import FieldsInvalid, Violation, refuse
from imp_service.rpc.replies.error_table import FIELD_INVALID
from imp_service.rpc.replies.statuses import violations_of
from imp_service.rpc.requests.field_rules import findings
from imp_service.serving.host import Host
from imp_service.serving.served_model import Terms
from imp_service.text import TextError


@contextmanager
def paths_under(member: str) -> Iterator[None]:
    """Within, `temperature` becomes `member.temperature` in whatever names a field; an empty member changes nothing."""
    try:
        yield
    except InvalidArgument as error:
        if not member or error.reason != FIELD_INVALID:
            raise
        inner = violations_of(error)
        raise FieldsInvalid([Violation(f"{member}.{each.path}", each.message) for each in inner]) from error
    except TextError as error:
        if not member:
            raise
        raise type(error)(f"{member}.{error.path}", error.message) from error


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
