"""Field paths of errors in the words of the caller's request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from imp_service.api.errors import FieldsInvalid, Violation
from imp_service.core import InvalidArgument
from imp_service.serving.errors.error_table import FIELD_INVALID
from imp_service.serving.errors.failures import violations_of
from imp_service.text import TextError

Rename = Callable[[str], str]


@contextmanager
def paths_renamed(rename: Rename) -> Iterator[None]:
    """Renames the fields in errors raised within the `with` block."""
    try:
        yield
    except InvalidArgument as error:
        if error.reason != FIELD_INVALID:
            raise
        raise FieldsInvalid([Violation(rename(each.path), each.message) for each in violations_of(error)]) from error
    except TextError as error:
        raise type(error)(rename(error.path), error.message) from error


def paths_under(member: str) -> AbstractContextManager[None]:
    """Prefixes the fields in errors raised within the `with` block: `temperature` becomes `member.temperature`."""
    return paths_renamed(lambda path: f"{member}.{path}")
