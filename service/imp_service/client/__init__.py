"""A client of any imp.v1 server: where it is, how it is reached, and what its failures and streams say."""

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
