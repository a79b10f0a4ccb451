"""What constraints on output may take in memory, as the keys of [text] bound it."""

from __future__ import annotations

from imp_service.config.settings import TextBounds

# A process of its own tries each constraint out: Python and the grammar library, of which 11 MiB are its own.
WORKER_BYTES = 21 * 1024**2


def constraint_bytes(text: TextBounds) -> int:
    """Programs kept and in use, one that is being tried out in the worker, and the same being compiled here."""
    return text.cache_bytes + 2 * text.compile_bytes + WORKER_BYTES
