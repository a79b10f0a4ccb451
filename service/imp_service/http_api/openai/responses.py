"""Replies of a generation as a response, whole or as events."""

from __future__ import annotations

import json
from typing import Any

from imp_service.api.replies import Chunk, Finished, Reply, Started, Usage
from imp_service.http_api.answers.marks import EventWriter
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.logprobs import TokenTexts, chat_entries
from imp_service.http_api.openai.replies import RESPONSE_PREFIX, Head, finish_reason, image_tokens
from imp_service.http_api.openai.response_items import COMPLETED, IN_PROGRESS, INCOMPLETE, Entry, Event, Output
from imp_service.http_api.requests.generation import ParsedRequest

# Fields of the request that the response repeats.
REPEATED = (
    "instructions",
    "max_output_tokens",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)


class Response:
    """One response while it grows."""

    def __init__(self, head: Head, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._head = head
        self._reading = parsed.reading
        self._token_texts = token_texts
        self._has_logprobs = parsed.requests[0].output.logprobs
        self._output = Output(head.id.removeprefix(RESPONSE_PREFIX))
        # Log probabilities of tokens whose text was not sent yet.
        self._waiting: list[Entry] = []
        self.status = IN_PROGRESS
        self._usage: Usage | None = None

    def take(self, reply: Reply) -> list[Event]:
        """The events of a reply."""
        match reply:
            case Chunk():
                if self._has_logprobs:
                    self._waiting += chat_entries(self._token_texts, reply.token_ids, reply.logprobs, reply.candidates)
                return self._grow(reply)
            case Finished():
                events = self._grow(reply)
                self._usage = reply.usage
                self.status = INCOMPLETE if finish_reason(reply) == "length" else COMPLETED
                if self._output.is_empty or (self._waiting and self._output.is_saying):
                    events += self._output.say("", self._taken())
                return [*events, *self._output.end(self.status)]
        return []

    def fields(self) -> dict[str, Any]:
        """The response as it is now."""
        given = self._reading.get
        is_cut = self.status == INCOMPLETE
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "model": self._head.model,
            "status": self.status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": self._output.items,
            "usage": None if self._usage is None else usage_of(self._usage),
            **{name: given(name) for name in REPEATED},
            "metadata": given("metadata", {}),
            "parallel_tool_calls": given("parallel_tool_calls", True),
            "reasoning": {"effort": given("reasoning", {}).get("effort"), "summary": None},
            "text": {"format": given("text", {}).get("format") or {"type": "text"}, "verbosity": "medium"},
            "tool_choice": given("tool_choice", "auto"),
            "tools": given("tools", []),
            "background": False,
            "previous_response_id": None,
            "service_tier": "default",
            **({} if given("store") is None else {"store": False}),
            "truncation": "disabled",
        }

    def _grow(self, part: Chunk | Finished) -> list[Event]:
        events: list[Event] = []
        calls = [*part.tool_calls]
        if calls and not calls[0].id:
            # The rest of the call that grows. Everything else in this part comes after it.
            events += self._output.call(calls.pop(0))
        if part.reasoning:
            events += self._output.reason(part.reasoning)
        if part.text:
            events += self._output.say(part.text, self._taken())
        elif part.reasoning or part.tool_calls:
            # Only the text of a message has log probabilities.
            self._waiting = []
        for delta in calls:
            events += self._output.call(delta)
        return events

    def _taken(self) -> list[Entry]:
        taken, self._waiting = self._waiting, []
        return taken


class WholeResponse:
    """Gathers the replies of one generation."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def add(self, _: int, reply: Reply) -> None:
        """Adds a reply."""
        self._response.take(reply)

    def body(self) -> bytes:
        """The whole response."""
        return dumps(self._response.fields()).encode()


class ResponseEvents(EventWriter):
    """Writes the replies of one generation as events."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._n_events = 0

    def write(self, _: int, reply: Reply) -> bytes:
        """The events of a reply. May be empty."""
        events = self._response.take(reply)
        if isinstance(reply, Started):
            response = self._response.fields()
            events = [{"type": f"response.{kind}", "response": response} for kind in ("created", IN_PROGRESS)]
        return b"".join(map(self._event, events))

    def end(self) -> bytes:
        """The event with the whole response, which is the last one."""
        return self._event({"type": f"response.{self._response.status}", "response": self._response.fields()})

    def failure(self, body: bytes) -> bytes:
        """A failure as the last event. `body` is the body that a failed call without a stream would have."""
        error = json.loads(body)["error"]
        return self._event({"type": "error", **{name: error[name] for name in ("code", "message", "param")}})

    def _event(self, event: Event) -> bytes:
        numbered = {**event, "sequence_number": self._n_events}
        self._n_events += 1
        return f"event: {event['type']}\ndata: {dumps(numbered)}\n\n".encode()


def usage_of(usage: Usage) -> dict[str, Any]:
    """The tokens of a response. Tokens written to the cache are not counted separately."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_prompt_tokens,
            "cache_write_tokens": 0,
            **image_tokens(usage),
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
