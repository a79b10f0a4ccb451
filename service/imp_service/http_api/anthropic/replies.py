"""Replies of a generation as a message, whole or as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imp_service.api.replies import Chunk, Finished, Reply, Started, Usage
from imp_service.http_api.answers.endings import refuse_aborted
from imp_service.http_api.anthropic.content import Content, Event
from imp_service.http_api.json_text import dumps

PREFIX = "msg_"
# Reasons of imp for which an output is not complete -> those of Anthropic.
STOPS: Mapping[str, str] = {
    "max_tokens": "max_tokens",
    "time_limit": "max_tokens",
    "context_full": "model_context_window_exceeded",
}
# The last event.
STOP: Event = {"type": "message_stop"}


class Message:
    """One message while it grows."""

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model
        self._content = Content()
        self._stop: dict[str, str | None] = {"stop_reason": None, "stop_sequence": None}
        self._usage = Usage(0, 0, 0)

    def take(self, reply: Reply) -> list[Event]:
        """The events of a reply."""
        match reply:
            case Started():
                self._usage = Usage(reply.prompt_tokens, reply.cached_prompt_tokens, 0)
                return [{"type": "message_start", "message": self.fields()}, {"type": "ping"}]
            case Chunk():
                return self._content.take(reply)
            case Finished():
                events = [*self._content.take(reply), *self._content.end()]
                self._stop = stop_of(reply, has_calls=self._content.has_calls)
                self._usage = reply.usage or self._usage
                return [
                    *events,
                    {"type": "message_delta", "delta": self._stop, "usage": usage_of(self._usage)},
                    STOP,
                ]
        return []

    def fields(self) -> dict[str, Any]:
        """The message as it is now."""
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._content.blocks(),
            **self._stop,
            "usage": {**usage_of(self._usage), "service_tier": "standard"},
        }


class WholeMessage:
    """Gathers the replies of one generation into a message."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def add(self, _: int, reply: Reply) -> None:
        """Adds a reply."""
        self._message.take(reply)

    def body(self) -> bytes:
        """The whole message."""
        return dumps(self._message.fields()).encode()


class MessageEvents:
    """Writes the replies of one generation as events."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def write(self, _: int, reply: Reply) -> bytes:
        """The events of a reply. May be empty."""
        return b"".join(map(written, self._message.take(reply)))

    def end(self) -> bytes:
        """Nothing: the last reply has the last events."""
        return b""

    def over(self) -> bytes:
        """The event that ends every stream."""
        return written(STOP)


def written(event: Event) -> bytes:
    """An event of a stream."""
    return f"event: {event['type']}\ndata: {dumps(event)}\n\n".encode()


def stop_of(end: Finished, *, has_calls: bool) -> dict[str, str | None]:
    """Why a message ended. Raises if an operator aborted it."""
    refuse_aborted(end)
    reason = STOPS.get(end.reason) or ("tool_use" if has_calls else "end_turn")
    matched = end.match.text if end.match is not None and end.reason not in STOPS else None
    return {"stop_reason": reason if matched is None else "stop_sequence", "stop_sequence": matched}


def usage_of(usage: Usage) -> dict[str, Any]:
    """The tokens of a message. Those of the prompt that the cache had are counted apart.

    Tokens written to the cache are not counted separately.
    """
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_prompt_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
