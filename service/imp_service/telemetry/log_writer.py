"""Writes log lines on a thread of its own, so that logging never blocks."""

import os
import select
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from imp_service.telemetry.log_entry import Format, LogEntry

# Queued lines; further ones are dropped and counted.
MAX_WAITING = 4096
MAX_BATCH = 256
POLL_MS = 200


class LogWriter:
    """Any thread may call put(). The thread starts with the first line and is a daemon."""

    def __init__(self, descriptor: int, format_entry: Format, max_waiting: int = MAX_WAITING) -> None:
        """Writes to `descriptor`, which the caller owns. If it is closed, lines are dropped."""
        self._descriptor = descriptor
        self._format = format_entry
        self._max_waiting = max_waiting
        self._waiting: SimpleQueue[LogEntry | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        # The last line was written in part: the next one must begin on a new line.
        self._is_torn = False
        self._n_reported = 0
        # Lines dropped because the queue was full, and because writing failed (updated by the thread).
        self.n_backlog = 0
        self.n_failed = 0

    def put(self, entry: LogEntry) -> None:
        """Queues a line, or drops and counts it."""
        if self._is_closing or self._waiting.qsize() >= self._max_waiting:
            self.n_backlog += 1
            return
        self._waiting.put(entry)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="imp-log", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 1.0) -> bool:
        """Writes queued lines for at most `timeout` seconds; False if the thread still blocks in a write."""
        self._is_closing = True
        if self._thread is None:
            return True
        self._waiting.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch = list(self._take())
            is_open = batch[-1] is not None
            entries = [entry for entry in batch if entry is not None]
            lines = [self._format(entry) for entry in entries]
            n_dropped = self.n_backlog + self.n_failed - self._n_reported
            if entries and n_dropped:
                note = LogEntry(time.time(), "warning", "log", "lines were dropped", {"dropped": n_dropped})
                lines.append(self._format(note))
            if not self._write("".join(f"{line}\n" for line in lines).encode()):
                self.n_failed += len(entries)
            else:
                self._n_reported += n_dropped

    def _take(self) -> Iterator[LogEntry | None]:
        """Waits for an entry, then yields it and those queued after it; None is the end."""
        entry = self._waiting.get()
        yield entry
        for _ in range(MAX_BATCH - 1):
            if entry is None:
                return
            try:
                entry = self._waiting.get_nowait()
            except Empty:
                return
            yield entry

    def _write(self, data: bytes) -> bool:
        left = memoryview(b"\n" + data if self._is_torn and data else data)
        whole = len(left)
        try:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    # Another owner of the descriptor made it non-blocking.
                    self._wait_until_writable()
        except OSError:
            self._is_torn = self._is_torn or len(left) < whole
            return False
        self._is_torn = False
        return True

    def _wait_until_writable(self) -> None:
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        if not writable.poll(POLL_MS) and self._is_closing:
            raise OSError("closed before it could be written")
