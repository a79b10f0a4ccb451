"""The failure of a call. It is independent of the errors that it is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from imp_service.api.errors import Violation
from imp_service.serving.errors.error_table import BUG, ERRORS, ErrorRow

MAX_MESSAGE_BYTES = 512


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a call, or of one session's step in it. Each transport writes it in its own form."""

    reason: str
    message: str
    request_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[Violation] = ()
    retry_after: float | None = None
    can_never_fit: bool = False

    @property
    def row(self) -> ErrorRow:
        """The reason's row in the error table."""
        return ERRORS[self.reason]

    @property
    def is_bug(self) -> bool:
        """An unexpected exception. The log has its traceback; the caller does not get it."""
        return self.reason == BUG

    @property
    def delay(self) -> float:
        """Seconds until the caller may retry, if its reason allows that."""
        return self.row.retry_after if self.retry_after is None else self.retry_after


def shown(text: str, max_bytes: int) -> str:
    """The text for a caller: control characters are escaped, and it is cut to `max_bytes`."""
    line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return line.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
