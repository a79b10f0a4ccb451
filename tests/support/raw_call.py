"""Makes one gRPC call over raw HTTP/2 and returns the trailing metadata as it is on the wire."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from google.protobuf.message import Message

from support.patience import HANGS_AFTER

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1
# gRPC's setting: binary metadata may arrive unencoded instead of as Huffman-coded base64.
ALLOW_TRUE_BINARY = 0xFE03


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name: str, value: str) -> bytes:
    """Encodes a header as a literal, not indexed and not compressed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def frames(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yields kind, flags and payload of each frame until the connection ends."""
    with connection.makefile("rb") as file:
        while head := file.read(9):
            size = int.from_bytes(head[:3], "big")
            yield head[3], head[4], file.read(size)


def trailers_of(address: str, method: str, request: Message) -> bytes:
    """Returns the header block that ends the call."""
    host, port = address.rsplit(":", 1)
    message = request.SerializeToString()
    asked = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "test", "te": "trailers"}
    block = b"".join(header(*pair) for pair in {**asked, "content-type": "application/grpc"}.items())
    with socket.create_connection((host, int(port)), timeout=HANGS_AFTER) as connection:
        connection.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, struct.pack(">HI", ALLOW_TRUE_BINARY, 1))
            + frame(HEADERS, END_HEADERS, 1, block)
            + frame(DATA, END_STREAM, 1, b"\x00" + struct.pack(">I", len(message)) + message)
        )
        for kind, flags, payload in frames(connection):
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0, b""))
            if kind == HEADERS and flags & END_STREAM:
                return payload
    raise AssertionError("the connection ended before the call did")


def binary_value(block: bytes, key: str) -> bytes:
    """Returns the value of a -bin key that arrived unencoded; fails if the key is missing."""
    at = block.index(key.encode()) + len(key)
    size, at = block[at] & 0x7F, at + 1
    assert size < 0x7F and not block[at - 1] & 0x80, "longer than a test's value, or compressed"
    value = block[at : at + size]
    assert value[:1] == b"\x00"  # marks a value that is not base64
    return value[1:]
