"""Converts seconds to protobuf's Duration and Timestamp, and back."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

NS = 10**9
# The range of Duration: about ten thousand years, positive or negative.
MAX_SECONDS = 315_576_000_000


def duration(seconds: float) -> Duration:
    """To the nanosecond."""
    whole, ns = divmod(round(seconds * NS), NS)
    return Duration(seconds=whole, nanos=ns)


def timestamp(seconds: float) -> Timestamp:
    """Seconds since the epoch, to the microsecond: a float has no more digits."""
    whole, us = divmod(round(seconds * 1_000_000), 1_000_000)
    return Timestamp(seconds=whole, nanos=us * 1000)


def is_valid(value: Duration) -> bool:
    """Whether a duration is in range, and both parts have the same sign."""
    seconds, ns = value.seconds, value.nanos
    return abs(seconds) <= MAX_SECONDS and abs(ns) < NS and (seconds == 0 or ns == 0 or (seconds > 0) == (ns > 0))


def seconds_of(value: Duration) -> float:
    """A valid duration in seconds."""
    return value.seconds + value.nanos / NS
