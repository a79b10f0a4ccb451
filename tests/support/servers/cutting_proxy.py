"""A TCP proxy between clients and a server that can cut every connection, as a network does."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterator

CHUNK = 65536
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CuttingProxy:
    """A proxy that forwards bytes both ways on its own thread until close()."""

    def __init__(self, address: str) -> None:
        self.lead_to(address)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        # Each socket of a pair -> the other one.
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._is_open = True
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._forward, name="proxy")
        self._thread.start()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def n_connections(self) -> int:
        """The number of open connections."""
        with self._lock:
            return len(self._pairs) // 2

    def lead_to(self, address: str) -> None:
        """Connects new connections to this server."""
        host, _, port = address.rpartition(":")
        self._server = (host, int(port))

    def cut(self) -> int:
        """Resets every connection on both sides, in the middle of its traffic; returns how many."""
        with self._lock:
            n = len(self._pairs) // 2
            for end in list(self._pairs):
                self._drop(end)
        return n

    def close(self) -> None:
        """Ends the thread and every connection."""
        self._is_open = False
        self._wake.send(b"x")
        self._thread.join()
        self.cut()
        for end in (self._listener, self._wake, self._woken):
            end.close()
        self._selector.close()

    def _forward(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(CHUNK)
                elif isinstance(key.fileobj, socket.socket):
                    with self._lock:
                        self._pass_on(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        with self._lock:
            for end, other in ((client, server), (server, client)):
                self._pairs[end] = other
                self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        if end not in self._pairs:
            return  # cut after select found it readable
        try:
            data = end.recv(CHUNK)
            if data:
                self._pairs[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        other = self._pairs.pop(end, None)
        if other is None:
            return
        del self._pairs[other]
        for one in (end, other):
            self._selector.unregister(one)
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            one.close()
        self._wake.send(b"x")


@contextlib.contextmanager
def cutting_proxy(address: str) -> Iterator[CuttingProxy]:
    """Yields a proxy in front of `address` until the block ends."""
    proxy = CuttingProxy(address)
    try:
        yield proxy
    finally:
        proxy.close()
