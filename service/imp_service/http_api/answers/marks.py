"""Marks: comments in a stream of events from which a caller learns what it needs to resume the answer.

A mark is a line `: imp JSON`. It stands before the events that it is about, and says how many they are, and the CRC-32
of their bytes: a gateway may write an event of its own behind half an event. JSON writes no line end and every event
begins with a field's name, so no output can look like a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from imp_service.api.replies import Chunk, Finished, Reply, Started
from imp_service.api.resume import Origin
from imp_service.http_api.json_text import dumps
from imp_service.http_api.requests.resuming import Resuming
from imp_service.serving.errors.error_table import DRAINING
from imp_service.serving.errors.failure import Failure

# Failures of this server after which an answer can go on at another one, or here after a restart.
ENDS_HERE = frozenset({DRAINING, "DEVICE_FAULT", "STALLED"})
END_OF_EVENT = b"\n\n"
# Sent while the first reply takes long.
WAITING = b": waiting\n\n"


class EventWriter(Protocol):
    """Writes replies as events."""

    def write(self, prompt: int, reply: Reply) -> bytes: ...
    def end(self) -> bytes: ...

    def over(self) -> bytes:
        """What ends an answer to a caller that has every end. Nothing where the last event says more than that."""
        return b""


@dataclass(frozen=True, slots=True)
class AnswerName:
    """What names an answer. One that is resumed keeps its name."""

    id: str
    created: int


class MarkedEvents(EventWriter):
    """Writes events behind marks, if the answer can be resumed.

    In a resumed answer it first writes what the caller has already, and drops it: so numbers, items and texts go on.
    """

    def __init__(self, events: EventWriter, name: AnswerName, resuming: Resuming, n_sequences: int) -> None:
        self._events = events
        self._name = name
        self._is_resumed = resuming.resume is not None
        # The replies that the caller has already. Known once the first one has come.
        self.told: Callable[[], Sequence[Reply]] = tuple
        came = resuming.resume.sequences if resuming.resume is not None else ()
        # Sequences whose end the caller does not have.
        self._n_open = n_sequences - sum(each.finished for each in came)
        # Whether the caller can go on elsewhere. While nothing was sent, it can send the request again.
        self._is_resumable = True

    def write(self, prompt: int, reply: Reply) -> bytes:
        """The mark of a reply, and its events."""
        written = self._events.write(prompt, reply)
        match reply:
            case Started():
                return self._begin(reply, written)
            case Chunk():
                return self._marked({"told": [[reply.index, reply.token_ids]]}, written)
            case Finished():
                self._n_open -= 1
                # The last events come with the last end, so that nothing is left to resume after it.
                last = b"" if self._n_open else self._events.end()
                return self._marked({"finished": [reply.index], **self._done()}, written + last)

    def end(self) -> bytes:
        """Nothing: the last reply has the last events."""
        return b""

    def fail(self, failure: Failure, event: bytes) -> bytes:
        """The error event behind its mark; where the answer can go on elsewhere, a mark in place of the event."""
        if self._is_resumable and failure.reason in ENDS_HERE:
            return mark({"end": failure.reason})
        return self._marked({"failed": failure.reason}, event)

    def _begin(self, started: Started, written: bytes) -> bytes:
        self._is_resumable = started.origin is not None
        if self._is_resumed:
            written = b""
            for reply in self.told():
                # The reason of an end is not known, and no later event depends on it.
                if isinstance(reply, Chunk):
                    self._events.write(0, reply)
        if started.origin is None:
            return mark({"origin": None}) + written
        names = {"id": self._name.id, "created": self._name.created}
        begin = self._marked({"origin": _written(started.origin), **names}, written)
        # Only a resumed answer may have no end left to send.
        return begin if self._n_open else begin + self._marked({"over": True}, self._events.over())

    def _done(self) -> dict[str, bool]:
        return {} if self._n_open else {"done": True}

    def _marked(self, facts: Mapping[str, Any], events: bytes) -> bytes:
        if not self._is_resumable:
            return events
        about = {"events": events.count(END_OF_EVENT), **({"crc": crc32(events)} if events else {})}
        return mark({**facts, **about}) + events


def mark(facts: Mapping[str, Any]) -> bytes:
    """One mark."""
    return f": imp {dumps(facts)}\n\n".encode()


# The same in an answer with marks: so a caller knows that its events will have marks.
MARKED_WAITING = mark({"waiting": True})


def _written(origin: Origin) -> dict[str, Any]:
    """An origin as the field `resume` takes it. Many clients have no integers of 64 bits."""
    return {
        "server": origin.server,
        "request": origin.request,
        "seed": str(origin.seed),
        "created": origin.created,
    }
