"""The errors of the Python API: one family, whatever layer fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from imp_service.api.errors import advised, invalid
from imp_service.core import make_error
from imp_service.text import FieldInvalid, TextError


@contextmanager
def translating_text_errors() -> Iterator[None]:
    """Raises the text layer's errors as the core's, with the same reason and message. Also a decorator."""
    try:
        yield
    except FieldInvalid as error:
        raise invalid(error.path, error.message) from error
    except TextError as error:
        raise make_error(error.reason, advised(error.reason, str(error))) from error
