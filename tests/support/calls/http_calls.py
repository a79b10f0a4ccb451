"""Calls over HTTP with the standard library's client. Checks every answer against the types of its API's SDK."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.calls import anthropic_types
from support.calls.anthropic_types import is_of_anthropic
from support.calls.openai_types import check_answer, check_error, check_event

JSON = {"content-type": "application/json"}
DONE = "[DONE]"
# The last events of a response, and of a message, that did not fail.
ENDS = ("response.completed", "response.incomplete", "message_stop")


@dataclass(frozen=True)
class Reply:
    """A whole response."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.content)

    @property
    def error(self) -> dict[str, Any]:
        """The error in the body."""
        return dict(self.json["error"])

    @property
    def refusal(self) -> tuple[int, str | None, str | None]:
        """The status, code and param of an error."""
        return self.status, self.error["code"], self.error["param"]

    @property
    def choice(self) -> dict[str, Any]:
        """The only choice."""
        (choice,) = self.json["choices"]
        return dict(choice)


@dataclass
class Events:
    """The events of a stream, as far as they were read."""

    status: int
    headers: dict[str, str]
    objects: list[dict[str, Any]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    has_done: bool = False

    @property
    def error(self) -> dict[str, Any] | None:
        """The error event, which is the last."""
        last = self.objects[-1] if self.objects else {}
        return last if last.get("type") == "error" and "error" not in last else last.get("error")


class HttpClient:
    """Makes a connection for each call."""

    def __init__(self, connect: Callable[[], socket.socket], key: str | None = None) -> None:
        self._connect = connect
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        """Returns the response to a POST of a JSON body or of the given bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, content, JSON | headers)

    def get(self, path: str, **headers: str) -> Reply:
        """Returns the response to a GET."""
        return self.request("GET", path, None, headers)

    def request(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> Reply:
        """Returns the whole response. Underscores in the names of headers become dashes."""
        with self._sent(method, path, content, headers) as response:
            reply = Reply(response.status, _headers(response), response.read())
        if method != "HEAD":
            check_reply(path, reply, content, headers)
        return reply

    def stream(self, path: str, body: dict[str, Any], **headers: str) -> Events:
        """Returns all events of a stream."""
        events = None
        for events in self.streaming(path, body, **headers):  # noqa: B007
            pass
        assert events is not None
        return events

    def streaming(self, path: str, body: dict[str, Any], **headers: str) -> Iterator[Events]:
        """Yields all events so far after each event. Closing the iterator closes the connection."""
        content = json.dumps(body | {"stream": True}).encode()
        with self._sent("POST", path, content, JSON | headers) as response:
            events = Events(response.status, _headers(response))
            assert events.status == 200, response.read()
            assert events.headers["content-type"] == "text/event-stream"
            yield events
            for line, kind in _events(response):
                if line.startswith(":"):
                    events.comments.append(line[1:].strip())
                elif line == f"data: {DONE}":
                    events.has_done = True
                else:
                    assert not events.has_done and line.startswith("data: "), line
                    found = json.loads(line.removeprefix("data: "))
                    number = None if kind is None or is_of_anthropic(path) else len(events.objects)
                    assert (found.get("type"), found.get("sequence_number")) == (kind, number)
                    events.has_done = kind in ENDS
                    events.objects.append(found)
                    if is_of_anthropic(path):
                        anthropic_types.check_event(found)
                    else:
                        check_event(path, found, body)
                yield events
            # The body ended as chunked bodies do: http.client raises IncompleteRead if not.
            assert events.has_done != (events.error is not None)

    @contextmanager
    def _sent(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = self._connect()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, self._headers | named)
            with connection.getresponse() as response:
                yield response


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    pairs = [(name.lower(), value) for name, value in response.getheaders()]
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str | None]]:
    """Yields the line of each event, and its name if it has one."""
    while line := response.readline():
        kind = None
        if line.startswith(b"event: "):
            kind, line = line.decode().removeprefix("event: ").removesuffix("\n"), response.readline()
        assert response.readline() == b"\n", line
        yield line.decode().removesuffix("\n"), kind


def check_reply(path: str, reply: Reply, sent: bytes | None, headers: Mapping[str, str]) -> None:
    """Raises if a response is not as that of the API's own server would be."""
    if is_of_anthropic(path, headers):
        _check_message(path, reply)
    elif reply.status >= 400:
        if not (path.startswith("/health") and reply.status == 503):
            check_error(reply.json)
    elif reply.status == 200 and path.endswith(("/completions", "/responses", "/decisions")):
        check_answer(path, reply.content, json.loads(sent or b"{}"))


def _check_message(path: str, reply: Reply) -> None:
    if reply.status < 400:
        anthropic_types.check_answer(path, reply.content)
        return
    anthropic_types.check_error(reply.json)
    if path.startswith("/v1/"):
        assert reply.headers["request-id"] == reply.headers["x-request-id"] == reply.json["request_id"]
