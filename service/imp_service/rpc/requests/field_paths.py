"""Puts what is wrong inside a member of a request under that member's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from imp_service.core import InvalidArgument
from imp_service.generation.validate import FieldsInvalid, Violation
from imp_service.rpc.replies.error_table import FIELD_INVALID
from imp_service.rpc.replies.statuses import violations_of
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
