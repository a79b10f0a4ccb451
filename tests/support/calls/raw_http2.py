"""Sends handmade HTTP/2 frames that no client library would send."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from support.run.patience import HANGS_AFTER

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1


def frame(kind: int, content: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Encodes one frame."""
    return struct.pack(">I", len(content))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + content


def fields(*pairs: tuple[str, str]) -> bytes:
    """Encodes a header block of literals without indexing and without Huffman coding."""
    block = b""
    for pair in pairs:
        block += b"\x00" + b"".join(_string(text.encode()) for text in pair)
    return block


def _string(content: bytes) -> bytes:
    if len(content) < 127:
        return bytes((len(content),)) + content
    rest, digits = len(content) - 127, b""
    while rest >= 128:
        digits += bytes((rest % 128 + 128,))
        rest //= 128
    return b"\x7f" + digits + bytes((rest,)) + content


def call_fields(path: str, **changes: str | None) -> list[tuple[str, str]]:
    """Returns a gRPC call's fields. `changes` replace or, if None, omit some; `_` means `-`, a leading one `:`."""
    found: dict[str, str | None] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    for name, value in changes.items():
        key = f":{name[1:]}" if name.startswith("_") else name.replace("_", "-")
        found[key] = value
    return [(name, value) for name, value in found.items() if value is not None]


class RawConnection:
    """A connection that sends bytes to a server and reads frames."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), HANGS_AFTER)

    def send(self, *parts: bytes) -> None:
        """Sends all bytes; ignores a connection that the server has closed."""
        try:
            self._socket.sendall(b"".join(parts))
        except OSError:
            return

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yields the kind, flags, stream and content of each frame until the server closes."""
        while len(head := self._read(9)) == 9:
            n_bytes = int.from_bytes(head[:3], "big")
            yield head[3], head[4], int.from_bytes(head[5:9], "big"), self._read(n_bytes)

    def is_readable(self, seconds: float) -> bool:
        """Returns whether bytes from the server arrive within this time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def read_to_end(self) -> bytes:
        """Returns everything until the server closes."""
        content = b""
        while part := self._read(65536):
            content += part
        return content

    def shut(self) -> None:
        """Ends what other threads read and send."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection without GOAWAY."""
        self._socket.close()

    def _read(self, n_bytes: int) -> bytes:
        content = b""
        try:
            while len(content) < n_bytes and (part := self._socket.recv(n_bytes - len(content))):
                content += part
        except ConnectionError:
            return content
        return content


@contextmanager
def raw_connection(address: str, *, greets: bool = True) -> Iterator[RawConnection]:
    """Yields a connection; with `greets`, after it has sent the preface."""
    connection = RawConnection(address)
    try:
        if greets:
            connection.send(PREFACE, frame(SETTINGS))
        yield connection
    finally:
        connection.close()
