"""Server-sent events whose first fields are the same in every event of a stream: they are written once."""

from __future__ import annotations

from typing import Any

from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.replies import Head

DONE = b"data: [DONE]\n\n"


class Events:
    """Writes the events of one stream."""

    def __init__(self, head: Head, kind: str, *, has_usage: bool) -> None:
        """`has_usage`: every event has the key `usage`, which is null if the event has no usage."""
        self._prefix = f"data: {dumps(head.of(kind))[:-1]},"
        self._tail = ',"usage":null}\n\n' if has_usage else "}\n\n"

    def choice(self, choice: str, usage: dict[str, Any] | None = None) -> bytes:
        """An event with one choice, which is written as JSON already."""
        tail = self._tail if usage is None else f',"usage":{dumps(usage)}}}\n\n'
        return f'{self._prefix}"choices":[{choice}]{tail}'.encode()

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The event of a stream's usage, which has no choice."""
        return f'{self._prefix}"choices":[],"usage":{dumps(usage)}}}\n\n'.encode()
