"""A connection that sends large requests without their ends, as far as the server's flow control allows."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from types import TracebackType

from support.calls.raw_http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    RawConnection,
    call_fields,
    fields,
    frame,
)

# HTTP/2's windows before the server has sent its own, its code of the stream's window, and its largest frame.
WINDOW, WINDOW_SETTING, FRAME_BYTES = 65535, 4, 16384


class IncompleteMessages:
    """Sends on `n_calls` streams until the end of its block. A reader follows the windows."""

    def __init__(self, address: str, path: str, n_calls: int, n_bytes: int) -> None:
        """Each message says that it has `n_bytes`; the last one never comes."""
        self._connection = RawConnection(address)
        self._streams = range(1, 2 * n_calls, 2)
        self._n_bytes = n_bytes
        self._path = path
        self._changed = threading.Condition()
        self._window = self._stream_window = WINDOW
        self._further: Counter[int] = Counter()
        self._is_closed = False
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._send)]
        self.n_sent: Counter[int] = Counter()
        # Streams that the server has ended.
        self.ended: set[int] = set()

    def __enter__(self) -> IncompleteMessages:
        self._connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(SETTINGS))
        block = fields(*call_fields(self._path))
        for stream in self._streams:
            self._connection.send(frame(HEADERS, block, flags=END_HEADERS, stream=stream))
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._connection.shut()
        for each in self._threads:
            each.join()
        self._connection.close()

    def _read(self) -> None:
        for kind, flags, stream, content in self._connection.frames():
            with self._changed:
                if kind == WINDOW_UPDATE:
                    (more,) = struct.unpack(">I", content)
                    if stream:
                        self._further[stream] += more
                    else:
                        self._window += more
                elif kind == SETTINGS and not flags & ACK:
                    settings = dict(struct.iter_unpack(">HI", content))
                    self._stream_window = settings.get(WINDOW_SETTING, self._stream_window)
                    self._connection.send(frame(SETTINGS, flags=ACK))
                elif kind == PING and not flags & ACK:
                    self._connection.send(frame(PING, content, flags=ACK))
                elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
                    self.ended.add(stream)
                self._changed.notify_all()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _send(self) -> None:
        begin = b"\0" + struct.pack(">I", self._n_bytes)
        while True:
            with self._changed:
                while not (self._is_closed or (pieces := self._pieces())):
                    self._changed.wait()
                if self._is_closed:
                    return
                for stream, n in pieces:
                    content = (begin if not self.n_sent[stream] else b"").ljust(n, b"a")[:n]
                    self._connection.send(frame(DATA, content, stream=stream))
                    self.n_sent[stream] += n
                    self._window -= n

    def _pieces(self) -> list[tuple[int, int]]:
        """What may be sent now on one stream; nothing if all wait."""
        for stream in self._streams:
            room = self._stream_window + self._further[stream] - self.n_sent[stream]
            n = min(self._window, room, self._n_bytes - self.n_sent[stream], FRAME_BYTES)
            if n > 4 and stream not in self.ended:
                return [(stream, n)]
        return []
