"""Counts streams and sessions that cannot go on here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from imp_service.api.errors import RESUME_MISMATCH
from imp_service.core import Error
from imp_service.generation.resume import kind_of
from imp_service.telemetry.metrics import Metrics


@contextmanager
def mismatches_counted(metrics: Metrics) -> Iterator[None]:
    """Counts a RESUME_MISMATCH by what differs."""
    try:
        yield
    except Error as error:
        if error.reason == RESUME_MISMATCH:
            metrics.resume_mismatch.labels(kind_of(error.details["differs"])).inc()
        raise
