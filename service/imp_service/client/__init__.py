"""A client of any imp.v1 server: target, channel, failures, and the order of streams."""

from imp_service.client.connection import Connection
from imp_service.client.failure import CallFailure, failure_of
from imp_service.client.stream_order import StreamBroken, StreamOrder
from imp_service.client.target import DEFAULT_ADDRESS, Target, TlsFiles

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
