"""Server-sent events on their way: takes the marks out, and remembers what a broken stream needs to go on.

A server of imp that was asked for marks writes units: a mark, then the events that it is about. A unit is given on
whole or not at all, so what the client has is always what the marks say. A gateway between front and server ends a
broken stream with events of its own, even behind half an event. They have no mark, and the unit's sum shows the rest.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from imp_service.serving.message_memory import MessageMemory
from imp_service.serving.refusal import Refusal

MARK = b": imp "
# A gateway may have changed the ends of lines.
BLOCK_END, OTHER_BLOCK_END = b"\n\n", b"\r\n\r\n"
WAITING = b": waiting\n\n"
# Neither a comment nor the JSON of a mark has it.
EVENT = b"data: {"
# A server of imp sends an error that comes first as the response's status. Others, and gateways, send this event.
ERROR = b'data: {"error"'
# Gateways keep an idle stream of messages alive with this event.
PING = b"event: ping"
# Limits of what an upstream may send.
MAX_SEQUENCES = 4096
MAX_MARK_BYTES = 256 * 1024
MAX_ORIGIN_BYTES = 4096
MAX_UNIT_EVENTS = 64 * 1024
MAX_SILENT_BYTES = 16 * 1024**2
# An incomplete unit up to this size is not counted in the memory for kept data.
FREE_BYTES = 16 * 1024
# Ids are counted in steps: so many bytes more at a time.
STEP_BYTES = 4096
HEAD = ("origin", "id", "created")


class BadEvents(Exception):
    """What the upstream sent is no stream of imp, or does not fit in memory."""


class Told:
    """What the client has of one stream, over all upstreams that sent a part of it."""

    def __init__(self, memory: MessageMemory) -> None:
        self._held = memory.message(0)
        self._n_bytes = self._n_counted = 0
        # The stream's origin, id and time; empty: it has not begun.
        self.head: dict[str, Any] = {}
        # By number of the sequence: its ids, and how many of them came together. No sizes: each came alone.
        self._ids: dict[int, array[int]] = {}
        self._sizes: dict[int, array[int]] = {}
        self._finished: set[int] = set()
        self.n_tokens = 0
        # The client has the last event.
        self.is_done = False
        # False: there was no memory for the ids, so the stream cannot go on elsewhere.
        self.is_kept = True

    def add(self, mark: Mapping[str, Any]) -> None:
        """The client has the events of this mark. Raises BadEvents."""
        try:
            self._add(mark)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadEvents(f"a mark is malformed: {error}") from None

    def resume(self) -> dict[str, Any]:
        """The field `resume` of a request that goes on."""
        if not self.head:
            return {}
        n = 1 + max((*self._ids, *self._finished), default=-1)
        return {**self.head, "sequences": [self._sequence(i) for i in range(n)]}

    def close(self) -> None:
        """The stream is over."""
        self._ids.clear()
        self._sizes.clear()
        self._held.close()

    def _add(self, mark: Mapping[str, Any]) -> None:
        if "origin" in mark:
            head = {name: mark[name] for name in HEAD}
            if self.head not in ({}, head):
                raise BadEvents("another stream, expected the rest of this one")
            self.head = head
        elif not self.head:
            raise BadEvents("the first mark has no origin")
        for index, ids in mark.get("told", ()):
            self._keep(_checked(index), ids)
        self._finished.update(_checked(index) for index in mark.get("finished", ()))
        self.is_done = self.is_done or "done" in mark or "over" in mark

    def _keep(self, index: int, ids: list[int]) -> None:
        n_new = len(ids)
        self.n_tokens += n_new
        if not self.is_kept:
            return
        known = self._ids.setdefault(index, array("I"))
        sizes = self._sizes.get(index)
        if sizes is None and n_new != 1:
            sizes = self._sizes[index] = array("I", [1]) * len(known)
        known.extend(ids)
        if sizes is not None:
            sizes.append(n_new)
        self._n_bytes += known.itemsize * (n_new if sizes is None else n_new + 1)
        if self._n_bytes > self._n_counted:
            self._count()

    def _count(self) -> None:
        self._n_counted = self._n_bytes + STEP_BYTES
        try:
            self._held.grow(self._n_counted)
        except Refusal:
            self.is_kept = False
            self.close()

    def _sequence(self, index: int) -> dict[str, Any]:
        ids, sizes = self._ids.get(index, array("I")), self._sizes.get(index)
        chunks = {} if sizes is None else {"chunks": sizes.tolist()}
        return {"token_ids": ids.tolist(), **chunks, "finished": index in self._finished}


class MarkedReader:
    """Reads the answer of one upstream."""

    def __init__(self, told: Told, memory: MessageMemory) -> None:
        self._told = told
        # The rest of a stream that has begun must have marks: without them it would begin anew.
        self._goes_on = bool(told.head)
        self._held = memory.message(FREE_BYTES)
        self._is_counted = False
        self._rest = bytearray()
        self._block_end = BLOCK_END
        self._has_marks = False
        # The upstream writes no marks, so its bytes are relayed as they come.
        self.is_plain = False
        # False: it writes no marks, or says that nobody can go on with the stream.
        self.has_origin = True
        # The server has written its error, or says that it writes no marks: what follows is relayed.
        self.is_over = False
        # Why the upstream ends here, if it says that the stream can go on elsewhere.
        self.end: str | None = None
        # How one can see that a gateway broke the stream off. Nothing is read behind it.
        self.cut: str | None = None
        # The event with an error that came in place of the stream.
        self.error = b""
        self._mark: dict[str, Any] = {}
        self._unit: list[bytes | bytearray] = []
        self._n_missing = 0
        self._n_unit_bytes = 0
        self._n_silent = 0

    def feed(self, piece: bytes) -> bytes:
        """What the client gets now. Raises BadEvents."""
        if self.is_plain:
            return piece
        text: bytes | bytearray = piece
        searched = 0
        if self._rest:
            searched = max(len(self._rest) - len(self._block_end) + 1, 0)
            self._rest += piece
            text = self._rest
        if not self._has_marks and not self.is_over and ERROR.startswith(text[: len(ERROR)]):
            return self._take_error(text)
        if not self._has_marks and self._is_foreign(text):
            return self._give_up_marks(text)
        given: list[bytes | bytearray] = []
        begin, block_end = 0, self._block_end
        while self.cut is None and (found := text.find(block_end, max(begin, searched))) >= 0:
            end = found + len(block_end)
            self._take(text[begin:end], given)
            begin = end
        self._keep_rest(text, begin)
        return given[0] if len(given) == 1 and isinstance(given[0], bytes) else b"".join(given)

    @property
    def is_whole(self) -> bool:
        """The answer may end here."""
        is_complete = self.is_over or not self._has_marks or self._told.is_done
        return self.is_plain or (is_complete and not self._n_missing and not self._rest)

    def close(self) -> None:
        """Forgets what is incomplete."""
        self._held.close()

    def _is_foreign(self, text: bytes | bytearray) -> bool:
        """Whether this cannot become a stream with marks. A server of imp writes comments and marks first."""
        at = text.find(b"\r")
        if at >= 0 and text[at : at + 2] in (b"\r", b"\r\n"):
            self._block_end = OTHER_BLOCK_END
            at = -1
        return text[:1] != b":" or at >= 0

    def _take_error(self, text: bytes | bytearray) -> bytes:
        """Keeps the begin of an error in place of the stream, or all of it."""
        if text[len(ERROR) :].lstrip(b" :").startswith(b"null"):
            return self._give_up_marks(text)
        self._rest = bytearray(text)
        end = max(text.find(BLOCK_END), text.find(OTHER_BLOCK_END))
        if end >= 0 or len(text) > FREE_BYTES:
            self.cut, self.error = "an error in place of the stream", bytes(text[:end])
        return b""

    def _give_up_marks(self, text: bytes | bytearray) -> bytes:
        if self._goes_on:
            raise BadEvents("an answer without marks, expected the rest of a stream")
        self.is_plain, self.has_origin = True, False
        self._rest = bytearray()
        return bytes(text)

    def _take(self, block: bytes | bytearray, given: list[bytes | bytearray]) -> None:
        if block.startswith(b":") and EVENT in block:
            self.cut = "an event in the middle of a comment"
        elif block.startswith(MARK):
            self._take_mark(block, given)
        elif self._n_missing:
            self._unit.append(block)
            self._n_unit_bytes += len(block)
            self._n_missing -= 1
            if not self._n_missing:
                self._finish_unit(given)
        elif self.is_over or block.startswith((b":", PING)):
            given.append(block)
        elif self._has_marks:
            self.cut = None if self._told.is_done else "an event without a mark"
        elif self._goes_on:
            raise BadEvents("an event, expected the mark of the rest of a stream")
        else:
            self.is_over, self.has_origin = True, False
            given.append(block)

    def _take_mark(self, block: bytes | bytearray, given: list[bytes | bytearray]) -> None:
        if self._n_missing:
            raise BadEvents(f"a mark, expected {self._n_missing} events of the mark before")
        try:
            text = block[len(MARK) : -len(self._block_end)].decode()  # or the encoding would be guessed
            mark = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadEvents("a mark that is not JSON") from error
        n_events = mark.get("events", 1) if isinstance(mark, dict) else None
        if not isinstance(n_events, int) or not 0 <= n_events <= MAX_UNIT_EVENTS:
            raise BadEvents("a mark without a number of events")
        self._has_marks = True
        if "end" in mark:
            self.end = str(mark["end"])[:64]
            return
        if "waiting" in mark:
            given.append(WAITING)
            return
        if mark.get("origin", mark) is None:
            self._leave_marks()
            return
        if "origin" in mark and len(block) > MAX_ORIGIN_BYTES:
            raise BadEvents(f"an origin of {len(block)} bytes, expected at most {MAX_ORIGIN_BYTES}")
        if "origin" in mark and n_events and self._goes_on:
            raise BadEvents("the begin of a stream, expected its rest")
        self._mark, self._n_missing = mark, n_events
        self._n_silent += len(block)
        if self._n_silent > MAX_SILENT_BYTES:
            raise BadEvents(f"{self._n_silent} bytes of marks without an event")
        if not n_events:
            self._finish_unit(given)

    def _leave_marks(self) -> None:
        if self._goes_on or self._told.head:
            raise BadEvents("a stream that cannot be resumed, expected the rest of one")
        self.is_over, self.has_origin = True, False

    def _finish_unit(self, given: list[bytes | bytearray]) -> None:
        if "crc" in self._mark and self._mark["crc"] != self._sum():
            self.cut = "an event in the middle of another"
            return
        if "failed" in self._mark:
            self.is_over = True
        else:
            self._told.add(self._mark)
        if self._unit:
            if "over" not in self._mark:  # or the client has the events already, from the server before
                given += self._unit
            self._unit, self._n_unit_bytes, self._n_silent = [], 0, 0

    def _sum(self) -> int:
        content = b"".join(self._unit)
        return crc32(content if self._block_end is BLOCK_END else content.replace(b"\r\n", b"\n"))

    def _keep_rest(self, text: bytes | bytearray, begin: int) -> None:
        if text is self._rest:
            del self._rest[:begin]
        elif begin < len(text):
            self._rest = bytearray(text[begin:])
        n_bytes = len(self._rest) + self._n_unit_bytes
        if n_bytes > MAX_MARK_BYTES and self._rest.startswith(MARK):
            raise BadEvents(f"a mark of more than {MAX_MARK_BYTES} bytes")
        if n_bytes > FREE_BYTES:
            self._is_counted = True
            try:
                self._held.grow(n_bytes)
            except Refusal:
                raise BadEvents(f"an event of more than {n_bytes} bytes: front.memory is full") from None
        elif self._is_counted:
            self._is_counted = False
            self._held.close()


def _checked(index: Any) -> int:
    """The number of a sequence."""
    if not isinstance(index, int) or not 0 <= index < MAX_SEQUENCES:
        raise ValueError(f"sequence {str(index)[:32]}")
    return index
