"""A server in this process that answers over gRPC and over HTTP: so that the answers can be compared."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from imp_service.config.address import Address
from support.calls.http_calls import HttpClient, Reply
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve

DEMO_MODEL = "imp-demo"


class HttpServed:
    """One server with both transports, from serve_http() to the end of its block."""

    def __init__(self, served: Served, key: str | None, tls: ssl.SSLContext | None) -> None:
        self.served = served
        self._tls = tls
        self._key = key

        self.http = served.http
        self.client = self.connect()

    @property
    def address(self) -> Address:
        """The address of the first listener."""
        return Address(self.http.addresses[0])

    @property
    def url(self) -> str:
        """The base URL for OpenAI's clients."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://localhost:{self.address.port}/v1"

    def connect(self, key: str | None = None) -> HttpClient:
        """Returns a client that makes a connection for each call."""
        return HttpClient(self.socket, key or self._key)

    def socket(self, receive_buffer: int | None = None) -> socket.socket:
        """Returns a new connection."""
        path = self.address.socket_path
        family = socket.AF_INET if path is None else socket.AF_UNIX
        made = socket.socket(family, socket.SOCK_STREAM)
        made.settimeout(HANGS_AFTER)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(("127.0.0.1", self.address.port) if path is None else str(path))
        return made if self._tls is None else self._tls.wrap_socket(made, server_hostname="localhost")

    def chat(self, messages: str | list[dict[str, Any]] = "Hello", **fields: Any) -> Reply:
        """Returns the reply to a chat completion request."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.client.post("/v1/chat/completions", {"messages": messages, **fields})

    def complete(self, prompt: Any = "the cat", **fields: Any) -> Reply:
        """Returns the reply to a completion request."""
        return self.client.post("/v1/completions", {"prompt": prompt, **fields})

    def wait_for_rest(self) -> None:
        """Waits until no request is in progress and nothing runs."""
        self.served.wait_for_calls()
        self.served.wait_for_rest()

    def stop(self, grace_seconds: float = 0.0) -> None:
        """Stops the HTTP listeners."""
        self.served.run(self.http.stop(grace_seconds))


@contextmanager
def serve_http(
    *settings: str,
    sockets: Sequence[Path] = (),
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
    **how: Any,
) -> Iterator[HttpServed]:
    """Serves as serve() does, with HTTP on a free port or on `sockets`. Clients use token `key` and context `tls`."""
    addresses = [f"unix://{path}" for path in sockets] or ["127.0.0.1:0"]
    with serve(f"listen.http={json.dumps(addresses)}", *settings, **how) as served:
        http = HttpServed(served, key, tls)
        try:
            yield http
        finally:
            http.stop()
