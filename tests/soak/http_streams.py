"""Streams that clients of the packages `openai` and `anthropic` read: what each says, without what caches change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

from soak.golden_load import ClientState, GoldenLoad
from support.run.patience import HANGS_AFTER
from support.servers.messages_served import CHAT_TOOLS, TOOLS

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "days": {"type": "integer", "maximum": 99}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
TELL = [{"role": "user", "content": "Tell a story 😀"}]
USAGE = {"stream_options": {"include_usage": True}}
ENDLESS = {"extra_body": {"ignore_eos": True}}
SEED = {"seed": 20}
# Called when something of a stream has come.
Tick = Callable[[], None]


class Clients:
    """One connection pool of each package. They send a request once: a lost stream is an error."""

    def __init__(self, url: str) -> None:
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=HANGS_AFTER)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=HANGS_AFTER)

    def close(self) -> None:
        """Closes the connections."""
        self.openai.close()
        self.anthropic.close()


def chat(clients: Clients, body: dict[str, Any], tick: Tick) -> Any:
    """A chat completion, as a stream."""
    ids, usages, choices = set(), [], {}
    for chunk in clients.openai.chat.completions.create(model="", stream=True, **body):
        tick()
        ids.add(chunk.id)
        usages += [] if chunk.usage is None else [(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)]
        for choice in chunk.choices:
            one = choices.setdefault(choice.index, {"roles": [], "text": "", "calls": {}, "scores": [], "ends": []})
            one["roles"] += [] if choice.delta.role is None else [choice.delta.role]
            one["text"] += choice.delta.content or ""
            one["ends"] += [] if choice.finish_reason is None else [choice.finish_reason]
            one["scores"] += [] if choice.logprobs is None else [each.to_dict() for each in choice.logprobs.content]
            for call in choice.delta.tool_calls or ():
                heads = one["calls"].setdefault(call.index, [[], ""])
                heads[0] += [] if call.id is None else [(call.id, call.function.name)]
                heads[1] += call.function.arguments or ""
    return len(ids), usages, sorted(choices.items())


def whole_chat(clients: Clients, body: dict[str, Any], tick: Tick) -> Any:
    """A chat completion without a stream."""
    answer = clients.openai.chat.completions.create(model="", **body)
    tick()
    usage = answer.usage
    assert usage is not None  # narrows
    return (usage.prompt_tokens, usage.completion_tokens), [each.to_dict() for each in answer.choices]


def completions(clients: Clients, body: dict[str, Any], tick: Tick) -> Any:
    """A completion, as a stream."""
    ids, usages, choices = set(), [], {}
    for chunk in clients.openai.completions.create(model="", stream=True, **body):
        tick()
        ids.add(chunk.id)
        usages += [] if chunk.usage is None else [(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)]
        for choice in chunk.choices:
            one = choices.setdefault(choice.index, {"text": "", "ends": []})
            one["text"] += choice.text
            one["ends"] += [] if choice.finish_reason is None else [choice.finish_reason]
    return len(ids), usages, sorted(choices.items())


def responses(clients: Clients, body: dict[str, Any], tick: Tick) -> Any:
    """A response: its text in pieces and at its end, and its events in order, each with its number."""
    kinds, text, last = [], "", None
    for n, event in enumerate(clients.openai.responses.create(model="", stream=True, **body)):
        tick()
        assert event.sequence_number == n, f"event {n} has the number {event.sequence_number}"
        text += event.delta if event.type == "response.output_text.delta" else ""
        kinds += [event.type] if kinds[-1:] != [event.type] else []
        last = event
    assert last is not None and last.type in ("response.completed", "response.incomplete"), last
    usage = last.response.usage
    content = [part.to_dict() for item in last.response.output for part in item.content]
    return kinds, text, content, (usage.input_tokens, usage.output_tokens)


def messages(clients: Clients, body: dict[str, Any], tick: Tick) -> Any:
    """A message of Anthropic's API: its blocks and their pieces, and its events in order."""
    kinds, blocks, ends, n_outputs = [], {}, [], 0
    for event in clients.anthropic.messages.create(model="imp-demo", stream=True, **body):
        tick()
        kinds += [event.type] if kinds[-1:] != [event.type] else []
        if event.type == "content_block_start":
            assert event.index == len(blocks), f"block {event.index} after {len(blocks)}"
            blocks[event.index] = [event.content_block.to_dict(), ""]
        elif event.type == "content_block_delta":
            delta = event.delta.to_dict()
            blocks[event.index][1] += delta.get("text", "") + delta.get("partial_json", "")
        elif event.type == "message_delta":
            ends.append(event.delta.stop_reason)
            n_outputs = event.usage.output_tokens
    return kinds, sorted(blocks.items()), ends, n_outputs


@dataclass(frozen=True)
class HttpAsked:
    """A request: who reads its answer, and its fields."""

    read: Callable[[Clients, dict[str, Any], Tick], Any]
    body: dict[str, Any]


# Together: greedy and sampled, several choices, stops, calls, a schema, scores, penalties, text of several bytes.
ASKED: Sequence[HttpAsked] = (
    HttpAsked(chat, {"messages": TELL, "max_tokens": 300, "temperature": 0, **USAGE, **ENDLESS}),
    HttpAsked(chat, {"messages": TELL, "max_tokens": 150, "temperature": 1.2, "seed": 11, "n": 2, **USAGE, **ENDLESS}),
    HttpAsked(chat, {"messages": TELL, "max_tokens": 120, "seed": 12, "tools": CHAT_TOOLS, "tool_choice": "required"}),
    HttpAsked(chat, {"messages": TELL, "max_tokens": 120, "seed": 13, "response_format": SCHEMA_FORMAT, **USAGE}),
    HttpAsked(chat, {"messages": TELL, "max_tokens": 100, "seed": 14, "logprobs": True, "top_logprobs": 2, **ENDLESS}),
    HttpAsked(whole_chat, {"messages": TELL, "max_tokens": 150, "temperature": 1.2, "seed": 15, **ENDLESS}),
    HttpAsked(completions, {"prompt": "Once", "max_tokens": 300, "stop": ["garden", "e z"], "seed": 16, **USAGE}),
    HttpAsked(completions, {"prompt": "One day", "max_tokens": 250, "frequency_penalty": 0.6, "seed": 17, **ENDLESS}),
    HttpAsked(responses, {"input": "Tell", "max_output_tokens": 250, "extra_body": {"seed": 18, "ignore_eos": True}}),
    HttpAsked(messages, {"messages": TELL, "max_tokens": 250, "extra_body": {"seed": 19, "ignore_eos": True}}),
    HttpAsked(
        messages,
        {"messages": TELL, "max_tokens": 99, "tools": TOOLS, "tool_choice": {"type": "any"}, "extra_body": SEED},
    ),
)  # fmt: skip


def goldens(url: str) -> list[tuple[HttpAsked, Any]]:
    """Each request with its answer, alone, while nothing dies."""
    clients = Clients(url)
    try:
        return [(asked, asked.read(clients, asked.body, lambda: None)) for asked in ASKED]
    finally:
        clients.close()


class HttpLoad(GoldenLoad):
    """Clients of HTTP."""

    def __init__(self, url: str, known: Sequence[tuple[HttpAsked, Any]], n: int) -> None:
        shared = Clients(url)
        # Half of the clients share their connections.
        self._clients = [shared if i % 2 else Clients(url) for i in range(n)]
        super().__init__(known, n)

    def read(self, number: int, asked: HttpAsked, state: ClientState) -> Any:
        """The answer."""
        return asked.read(self._clients[number], asked.body, state.tick)

    def close(self) -> None:
        """Closes the connections."""
        for clients in self._clients:
            clients.close()
