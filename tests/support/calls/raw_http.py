"""Sends handmade HTTP/1.1 that no client library would send."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

from support.servers.http_served import HttpServed

STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")


def head(line: str = "GET /v1/models HTTP/1.1", *fields: str, host: str | None = "localhost") -> bytes:
    """Returns a head with correct line ends."""
    lines = [line, *(() if host is None else (f"Host: {host}",)), *fields]
    return "".join(f"{each}\r\n" for each in lines).encode() + b"\r\n"


def chat_head(n_bytes: int, *fields: str) -> bytes:
    """Returns the head of a chat completion request."""
    return head(
        "POST /v1/chat/completions HTTP/1.1", "Content-Type: application/json", f"Content-Length: {n_bytes}", *fields
    )


def chat(*fields: str, **body: Any) -> bytes:
    """Returns a whole chat completion request."""
    content = json.dumps({"messages": [{"role": "user", "content": "Hi"}], **body}).encode()
    return chat_head(len(content), *fields) + content


@dataclass(frozen=True)
class RawReply:
    """Everything received until the server closed the connection or `n_statuses` responses had arrived."""

    content: bytes
    has_closed: bool

    @property
    def statuses(self) -> list[int]:
        """The status of each response."""
        return [int(status) for status in STATUS.findall(self.content)]

    @property
    def status(self) -> int | None:
        """The status of the only response; None if there is not exactly one."""
        return self.statuses[0] if len(self.statuses) == 1 else None

    @property
    def error(self) -> dict[str, Any]:
        """The error in the body of the last response."""
        return dict(json.loads(self.content.rpartition(b"\r\n\r\n")[2])["error"])


def exchange(http: HttpServed, content: bytes, n_statuses: int | None = None) -> RawReply:
    """Sends bytes on a new connection. Returns what arrives until it closes or `n_statuses` responses have come."""
    with http.socket() as connection:
        return send_on(connection, content, n_statuses)


def send_on(connection: socket.socket, content: bytes, n_statuses: int | None = None) -> RawReply:
    """Sends bytes. Returns what arrives until the connection closes or until there are `n_statuses` responses."""
    found = b""
    try:
        connection.sendall(content)
        while n_statuses is None or len(RawReply(found, False).statuses) < n_statuses:
            piece = connection.recv(65536)
            if not piece:
                return RawReply(found, True)
            found += piece
    except (ConnectionResetError, BrokenPipeError):
        return RawReply(found, True)
    return RawReply(found, False)
