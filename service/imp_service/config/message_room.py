"""The largest message that gRPC takes in: larger than the limit, so that imp itself can refuse what exceeds the limit.

gRPC refuses a message beyond its own bound before imp sees the call, with a status but without a reason.
"""

from __future__ import annotations

from imp_service.config.settings import Limits

MOST_MARGIN_BYTES = 4 * 1024**2


def most_received_bytes(limits: Limits) -> int:
    """Twice `limits.max_message_bytes`, but no more than 4 MiB above it."""
    return limits.max_message_bytes + min(limits.max_message_bytes, MOST_MARGIN_BYTES)
