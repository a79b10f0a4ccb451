"""The service's own way to say no: a reason of the error table, in words, with what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):
    """Raised by whatever cannot do what was asked.

    `details` become the metadata of the status; `retry_after` (seconds) is told where the reason may be retried, and
    takes the place of the reason's own.
    """

    def __init__(
        self, reason: str, message: str, details: Mapping[str, str] | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
