"""Checks answers against the types of OpenAI's own SDK: every value has the exact type, and no field is unknown."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from openai.types import Completion, Decision
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.model import Model
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import BaseModel

# Fields beyond OpenAI's, by the request field that enables them.
EXTENSIONS: Mapping[str, frozenset[str]] = {
    "return_token_ids": frozenset({"token_ids", "prompt_token_ids", "token_id", "content"}),
    "prompt_logprobs": frozenset({"prompt_logprobs"}),
    # OpenAI's responses have it, the SDK's type does not.
    "store": frozenset({"store"}),
}
# The models of a response's events, by type.
EVENTS: Mapping[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}
# vLLM and others send the reasoning, and clients that show it expect this name. OpenAI counts no tokens of images.
ALWAYS = frozenset({"reasoning_content", "image_tokens"})
# vLLM's length of the context, and imp's defaults.
MODEL_EXTRAS = {
    "max_model_len",
    "max_output_tokens",
    "default_sampling",
    "default_sampling_origins",
    "input_modalities",
    "output_modalities",
    "capabilities",
}


def check_answer(path: str, content: bytes, asked: Mapping[str, Any]) -> BaseModel:
    """Raises if a whole answer does not match the SDK's type."""
    is_chat = path.endswith("/chat/completions")
    found = json.loads(content)
    if path.endswith("/decisions"):
        return _check(Decision, found, asked)
    if path.endswith("/responses"):
        return _check(Response, found, asked)
    return _check(ChatCompletion if is_chat else Completion, found if is_chat else _without_nulls(found), asked)


def check_event(path: str, event: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises if an event does not match the SDK's type."""
    if path.endswith("/responses"):
        _check(EVENTS[event["type"]], event, asked)
        return
    if "error" in event:
        check_error(event)
        return
    has_usage = dict(asked.get("stream_options") or {})
    wants_usage = has_usage.get("include_usage") or has_usage.get("continuous_usage_stats")
    assert wants_usage or "usage" not in event, event
    is_chat = path.endswith("/chat/completions")
    _check(ChatCompletionChunk if is_chat else Completion, event if is_chat else _without_nulls(event), asked)


def check_error(body: Any) -> None:
    """Raises if a body does not have the form of OpenAI's errors."""
    assert list(body) == ["error"], body
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}, error
    _check(ErrorObject, error, {})
    assert error["message"] and error["code"]


def check_model(entry: dict[str, Any]) -> None:
    """Raises if an entry of /v1/models does not match the SDK's type. It may have more fields."""
    assert extras_of(Model.model_validate_json(json.dumps(entry), strict=True)) == MODEL_EXTRAS


def _check(kind: type[BaseModel], found: Any, asked: Mapping[str, Any]) -> BaseModel:
    checked = kind.model_validate_json(json.dumps(found), strict=True)
    allowed = set(ALWAYS).union(*(names for name, names in EXTENSIONS.items() if asked.get(name) is not None))
    unknown = extras_of(checked) - allowed
    assert not unknown, f"fields that OpenAI's {kind.__name__} does not have: {unknown}"
    return checked


def extras_of(value: Any) -> set[str]:
    """Returns the names of all fields, at any depth, that the SDK's types do not have."""
    return set(_extras(value))


def _extras(value: Any) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from value.model_extra or {}
        for name in type(value).model_fields:
            yield from _extras(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from _extras(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _extras(each)


def _without_nulls(completion: dict[str, Any]) -> dict[str, Any]:
    """Replaces the nulls that OpenAI's own API sends although the SDK's type of completions does not allow them.

    They are the reason of a choice that has not ended, and the score of a text's first token.
    """
    found = copy.deepcopy(completion)
    for choice in found["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        if logprobs := choice["logprobs"]:
            for name, instead in (("token_logprobs", 0.0), ("top_logprobs", {})):
                if logprobs[name] and logprobs[name][0] is None:
                    logprobs[name][0] = instead
    return found
