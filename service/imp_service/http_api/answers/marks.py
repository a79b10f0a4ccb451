"""Marks: comments in a stream of events from which a caller learns what it needs to resume the answer.

A mark is a line `: imp JSON`. It stands before the events that it is about, and says how many they are. JSON writes no
line end and every event begins with a field's name, so no output can look like a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from imp_service.api.replies import Chunk, Finished, Reply, Started
from imp_service.api.resume import Origin
from imp_service.http_api.json_text import dumps
from imp_service.http_api.requests.resuming import Resuming
from imp_service.serving.errors.error_table import DRAINING
from imp_service.serving.errors.failure import Failure

# Failures of this server after which an answer can go on at another one, or here after a restart.
ENDS_HERE = frozenset({DRAINING, "DEVICE_FAULT", "STALLED"})
END_OF_EVENT = b"\n\n"


class EventWriter(Protocol):
    """Writes replies as events."""

    def write(self, prompt: int, reply: Reply) -> bytes: ...
    def end(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class AnswerName:
    """What names an answer. One that is resumed keeps its name."""

    id: str
    created: int


class MarkedEvents:
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
                return self._marked({"finished": [reply.index]}, written + last)

    def end(self) -> bytes:
        """Nothing: the last reply has the last events."""
        return b""

    def end_mark(self, failure: Failure) -> bytes | None:
        """A mark in place of an error event, after which the caller resumes; None if that is of no use."""
        return mark({"end": failure.reason}) if self._is_resumable and failure.reason in ENDS_HERE else None

    def _begin(self, started: Started, written: bytes) -> bytes:
        self._is_resumable = started.origin is not None
        if self._is_resumed:
            written = b""
            for reply in self.told():
                # The reason of an end is not known, and no later event depends on it.
                if isinstance(reply, Chunk):
                    self._events.write(0, reply)
        if started.origin is None:
            return written
        names = {"id": self._name.id, "created": self._name.created}
        return self._marked({"origin": _written(started.origin), **names}, written)

    def _marked(self, facts: Mapping[str, Any], events: bytes) -> bytes:
        if not self._is_resumable:
            return events
        return mark({**facts, "events": events.count(END_OF_EVENT)}) + events


def mark(facts: Mapping[str, Any]) -> bytes:
    """One mark."""
    return f": imp {dumps(facts)}\n\n".encode()


def _written(origin: Origin) -> dict[str, Any]:
    """An origin as the field `resume` takes it. Many clients have no integers of 64 bits."""
    return {
        "server": origin.server,
        "request": origin.request,
        "seed": str(origin.seed),
        "created": origin.created,
    }
