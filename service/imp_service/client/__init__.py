"""A client of any imp.v1 server: target, channel, failures, and the order of streams."""

from .connection import Connection
from .failure import CallFailure, failure_of
from .stream_order import StreamBroken, StreamOrder
from .target import DEFAULT_ADDRESS, Target, TlsFiles

__all__ = [
    "DEFAULT_ADDRESS",
    "CallFailure",
    "Connection",
    "StreamBroken",
    "StreamOrder",
    "Target",
    "TlsFiles",
    "failure_of",
]
