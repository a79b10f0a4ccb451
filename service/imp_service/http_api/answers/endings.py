"""How an output ended."""

from __future__ import annotations

from imp_service.api.replies import Finished
from imp_service.core import make_error

# Reasons for which an output is not complete.
CUT = frozenset({"max_tokens", "context_full", "time_limit"})


def refuse_aborted(end: Finished) -> None:
    """Raises if an operator aborted the output."""
    if end.reason != "stop" and end.reason not in CUT:
        raise make_error("CANCELLED", "the request was aborted")
