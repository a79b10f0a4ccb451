"""An error that the service itself raises: a reason of the error table, a message, and its details."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):
    """A request that the service refuses or ends.

    `details` become metadata of the status. `retry_after` (seconds) replaces the reason's own delay, if callers may
    retry it.
    """

    def __init__(
        self, reason: str, message: str, details: Mapping[str, str] | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
