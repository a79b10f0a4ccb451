"""A caller that resumes streams of events over HTTP, as the marks in them allow."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from support.servers.http_served import HttpServed

MARK = b": imp "


@dataclass
class Unit:
    """A mark and the events that it is about, as bytes with the empty lines that end them."""

    mark: dict[str, Any]
    events: list[bytes] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """All of its events have come."""
        return len(self.events) == self.mark.get("events", 0)


def stream_bytes(served: HttpServed, path: str, body: dict[str, Any], **headers: str) -> bytes:
    """Returns the body of a stream."""
    with closing(http.client.HTTPConnection("localhost")) as connection:
        connection.sock = served.socket()
        content = json.dumps({"stream": True, **body}).encode()
        connection.request("POST", path, content, {"content-type": "application/json", **headers})
        with connection.getresponse() as response:
            found = response.read()
            assert response.status == 200, found
            return found


def units_of(content: bytes) -> list[Unit]:
    """Returns the units that came whole, whose sums are checked. Comments that are no marks are left out."""
    found: list[Unit] = []
    for part in content.split(b"\n\n")[:-1]:
        if part.startswith(MARK):
            found.append(Unit(json.loads(part.removeprefix(MARK))))
        elif not part.startswith(b":"):
            found[-1].events.append(part + b"\n\n")
    whole = [each for each in found if each.is_whole]
    assert whole in (found, found[:-1])
    for each in whole:
        assert each.mark.pop("crc", None) == (crc32(b"".join(each.events)) if each.events else None)
    return whole


def events_of(units: Iterable[Unit]) -> bytes:
    """Returns the events without marks, as a front passes them on."""
    return b"".join(event for unit in units for event in unit.events)


def resume_of(units: Sequence[Unit]) -> dict[str, Any]:
    """Returns the field `resume` with which the stream goes on behind these units."""
    first = units[0].mark
    sequences: list[dict[str, Any]] = []

    def of(index: int) -> dict[str, Any]:
        while len(sequences) <= index:
            sequences.append({"token_ids": [], "chunks": [], "finished": False})
        return sequences[index]

    for unit in units:
        for index, ids in unit.mark.get("told", ()):
            of(index)["token_ids"] += ids
            of(index)["chunks"].append(len(ids))
        for index in unit.mark.get("finished", ()):
            of(index)["finished"] = True
    return {**{name: first[name] for name in ("origin", "id", "created")}, "sequences": sequences}
