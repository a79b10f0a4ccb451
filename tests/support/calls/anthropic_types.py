"""Checks answers against the types of Anthropic's own SDK: every value has the exact type, and no field is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from anthropic.pagination import SyncPage
from anthropic.types import Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from pydantic import BaseModel

from support.calls.openai_types import extras_of

# The models of a stream's events, by type. The SDK has none for `ping`, which it skips.
EVENTS: Mapping[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(RawMessageStreamEvent)[0])
}
PING = "ping"
NO_HEADERS: Mapping[str, str] = {}
# How the deltas of each kind of block are called, and their member with what is new.
DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}


def is_of_anthropic(path: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
    """Returns whether a path is one of Anthropic's API, or one of both and the caller's version is Anthropic's."""
    return "/messages" in path or "anthropic_version" in headers


def check_answer(path: str, content: bytes) -> None:
    """Raises if a whole answer does not match the SDK's type."""
    found = json.loads(content)
    if "/models" not in path:
        _check(MessageTokensCount if path.endswith("/count_tokens") else Message, found)
        return
    for each in found.get("data", [found]):
        _check(ModelInfo, each)
    assert found.keys() <= ModelInfo.model_fields.keys() | SyncPage.model_fields.keys()


def check_event(event: dict[str, Any]) -> None:
    """Raises if an event does not match the SDK's type."""
    if event["type"] == "error":
        check_error(event)
    elif event["type"] == PING:
        assert event == {"type": PING}
    else:
        _check(EVENTS[event["type"]], event)


def check_error(body: Any) -> None:
    """Raises if a body does not have the form of Anthropic's errors."""
    assert list(body) == ["type", "error", "request_id"], body
    assert body["error"].keys() == {"type", "message"}, body
    if body["error"]["type"] != "request_too_large":  # the API documents it, the SDK has no type for it
        _check(ErrorResponse, body)
    assert body["error"]["message"] and body["request_id"]


def built(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the message that the events of a stream build. Raises unless they come in the published order."""
    events = [each for each in events if each["type"] != PING]
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message = dict(events[0]["message"])
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    content = []
    rest = list(events[1:-2])
    while rest:
        first = rest.pop(0)
        assert (first["type"], first["index"]) == ("content_block_start", len(content))
        deltas = []
        while rest[0]["type"] == "content_block_delta":
            deltas.append(rest.pop(0))
        last = rest.pop(0)
        assert last["type"] == "content_block_stop"
        assert {each["index"] for each in (*deltas, last)} == {first["index"]}
        content.append(_block(first["content_block"], [each["delta"] for each in deltas]))
    usage = {**message["usage"], **events[-2]["usage"]}
    return {**message, "content": content, **events[-2]["delta"], "usage": usage}


def _block(begun: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    grown: dict[str, str] = {}
    for delta in deltas:
        member = DELTAS[begun["type"]][delta["type"]]
        grown[member] = grown.get(member, "") + delta[member]
    if begun["type"] != "tool_use":
        assert {begun[member] for member in DELTAS[begun["type"]].values()} == {""}
        return {**begun, **grown}
    assert begun["input"] == {}
    return {**begun, "input": json.loads(grown.get("partial_json", "{}"))}


def _check(kind: type[BaseModel], found: Any) -> None:
    unknown = extras_of(kind.model_validate_json(json.dumps(found), strict=True))
    assert not unknown, f"fields that Anthropic's {kind.__name__} does not have: {unknown}"
