"""Calls AdminService of a server in this process, which has a listener of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import grpc

from imp_service.pb import admin_pb2_grpc
from support.calls.checked_channel import checked
from support.servers.served import Served

LISTENS = "listen.admin=127.0.0.1:0"


@contextlib.contextmanager
def admin_of(served: Served) -> Iterator[admin_pb2_grpc.AdminServiceStub]:
    """Yields a stub on a new connection. The settings of the server must include LISTENS."""
    address = served.server.admin_address
    assert address is not None  # narrows
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as raw:
        yield admin_pb2_grpc.AdminServiceStub(checked(raw))
