"""Converts the Python API's arguments (prompts, messages and keywords) to requests."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from .chat_prompt import ChatMessage, ChatPrompt, ContentParts, InfillPrompt, joined
from .constraint_spec import ConstraintKind, ConstraintSpec
from .content_parts import NO_PART, text_member
from .errors import invalid
from .image import Image
from .json_classes import schema_of
from .keywords import keyword_of, parameters_of, take
from .options import DEFAULT_STEP, GenerationRequest, Prompt, SamplingOptions

ABSENT = ChatMessage("", "")
NO_PROMPT = GenerationRequest("")
# The fields of a request that are option classes, with their defaults.
GROUPS: Mapping[str, Any] = {
    field.name: field.default for field in fields(GenerationRequest) if is_dataclass(field.default)
}
GENERATION_PARAMETERS = [
    *(each for group in GROUPS.values() for each in parameters_of(group)),
    *(each for each in parameters_of(NO_PROMPT) if each.name != "prompt"),
    inspect.Parameter("suffix", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"),
    *(inspect.Parameter(kind.value, inspect.Parameter.KEYWORD_ONLY, default=None) for kind in ConstraintKind),
]
CHAT_PARAMETERS = [each for each in parameters_of(ChatPrompt(())) if each.name != "messages"]
SAMPLING_PARAMETERS = parameters_of(SamplingOptions())
STEP_PARAMETERS = [*parameters_of(DEFAULT_STEP), *SAMPLING_PARAMETERS]
Message = ChatMessage | Mapping[str, Any]
Conversation = str | Sequence[Message] | ChatPrompt


def request_of(prompt: Prompt | GenerationRequest, options: dict[str, Any]) -> GenerationRequest:
    """A request for a prompt with these keywords. If the prompt is a request, they override its fields."""
    request = prompt if isinstance(prompt, GenerationRequest) else GenerationRequest(prompt)
    if (suffix := options.pop("suffix", None)) is not None:
        request = replace(request, prompt=_with_gap(request.prompt, suffix))
    if isinstance(options.get("stop"), str):
        options["stop"] = (options["stop"],)
    groups = {}
    for name, default in GROUPS.items():
        whole = options.pop(name) if isinstance(options.get(name), type(default)) else getattr(request, name)
        groups[name] = take(whole, options)
        if name in options:
            raise TypeError(f"{name}: {type(options[name]).__name__}, expected {type(default).__name__}")
    constraint = _constraint_of(options)
    if constraint is not None:
        options["constraint"] = constraint
    return take(replace(request, **groups), options)


def _with_gap(prefix: Prompt, suffix: object) -> InfillPrompt:
    """The prompt of a text before a gap and one after it."""
    if not isinstance(prefix, str):
        raise invalid("suffix", f"given with {type(prefix).__name__}, expected a prompt that is text")
    if not isinstance(suffix, str):
        raise invalid("suffix", f"{type(suffix).__name__}, expected a text")
    return InfillPrompt(prefix, suffix)


def sampling_of(sampling: SamplingOptions | None, options: dict[str, Any]) -> SamplingOptions | None:
    """The sampler with these keywords; None where neither is given."""
    given = take(sampling or SamplingOptions(), options)
    return None if sampling is None and given == SamplingOptions() else given


def text_of(text: str) -> str:
    """A text, which may not be bytes."""
    if not isinstance(text, str):
        raise invalid("text", f"{type(text).__name__}, expected text")
    return text


def token_ids_of(token_ids: Sequence[int]) -> Sequence[int]:
    """A list of ids; their values are checked elsewhere."""
    if not isinstance(token_ids, Sequence):
        raise invalid("token_ids", f"{type(token_ids).__name__}, expected a list of token ids")
    return token_ids


def chat_of(messages: Conversation, options: dict[str, Any]) -> ChatPrompt:
    """A conversation with these keywords. A text is the user's first message."""
    if isinstance(messages, ChatPrompt):
        return take(messages, options)
    listed: Any = [ChatMessage("user", messages)] if isinstance(messages, str) else messages
    if isinstance(listed, bytes | Mapping) or not isinstance(listed, Sequence):
        raise invalid("chat.messages", f"{type(listed).__name__}, expected a question or a list of messages")
    return take(ChatPrompt(tuple(_message_of(f"chat.messages[{i}]", each) for i, each in enumerate(listed))), options)


def _message_of(path: str, message: Message) -> ChatMessage:
    if isinstance(message, ChatMessage):
        return message
    if not isinstance(message, Mapping):
        raise invalid(path, f"{type(message).__name__}, expected a ChatMessage or a dict")
    # None is an absent field. An assistant's message without content, as one of tool calls alone, keeps it.
    given = {name: value for name, value in message.items() if value is not None}
    if isinstance(parts := given.get("content"), list | tuple):
        given["content"] = _content_of(f"{path}.content", parts)
    made = take(ABSENT, given)
    for name in given:
        expected = ", ".join(map(keyword_of, fields(ABSENT)))
        raise invalid(f"{path}.{name}", f"unknown, expected one of {expected}")
    if made.role == "assistant" and message.get("content") is None:
        made = replace(made, content=None)
    for field in fields(made):
        if field.name == "content" and (made.content is None or isinstance(made.content, tuple)):
            continue
        if not isinstance(value := getattr(made, field.name), str):
            raise invalid(f"{path}.{field.name}", f"{type(value).__name__}, expected a text")
    return made


def _content_of(path: str, parts: Sequence[object]) -> str | ContentParts:
    """The parts of a content; their text if none is an image."""
    return joined(each if isinstance(each, Image) else _text_of(f"{path}[{i}]", each) for i, each in enumerate(parts))


def _text_of(path: str, part: object) -> str:
    """The text of a part of a message's content."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise invalid(path, f"{type(part).__name__}, expected a text, an Image, or a dict with type and text")
    member = text_member(part.get("type"))
    if member is None:
        raise invalid(f"{path}.type", f"{part.get('type')!r} {NO_PART}")
    text = part.get(member)
    if not isinstance(text, str):
        raise invalid(f"{path}.{member}", f"{type(text).__name__}, expected a text")
    return text


def _constraint_of(options: dict[str, Any]) -> ConstraintSpec | None:
    given = {kind: options.pop(kind.value) for kind in ConstraintKind if kind.value in options}
    chosen = {kind: value for kind, value in given.items() if value not in (None, False)}
    if len(chosen) + (options.get("constraint") is not None) > 1:
        raise TypeError(f"{', '.join(kind.value for kind in chosen)}: more than one constraint is given")
    for kind, value in chosen.items():
        if kind is ConstraintKind.CHOICES:
            return ConstraintSpec(kind, choices=tuple(value))
        if kind is ConstraintKind.JSON_OBJECT:
            return ConstraintSpec(kind)
        return ConstraintSpec(kind, schema_of(value) if kind is ConstraintKind.JSON_SCHEMA else value)
    return None
