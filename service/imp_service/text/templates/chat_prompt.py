"""The rules of a conversation's fields, and the variables that a template gets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imp_service.api.chat_prompt import ChatMessage, ChatPrompt, ContentParts
from imp_service.api.image import Image
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import KIB
from imp_service.text.strict_json import parse_strict_json
from imp_service.text.templates.json_arguments import JsonArguments
from imp_service.text.templates.template_text import TemplateText

MAX_MESSAGES = 1_024
MAX_NAME_BYTES = 128
MAX_TOOLS_BYTES = 256 * KIB
MAX_TOOLS_DEPTH = 32
MAX_DOCUMENTS_BYTES = 1024 * KIB
MAX_KWARGS_BYTES = 16 * KIB
MAX_KWARGS_DEPTH = 8

_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Roles that may be part of a special token that the template puts together, as in '<|' + role + '|>'.
_USUAL_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"})

# Names that the renderer sets, and names with a meaning in templates.
RESERVED_VARIABLES = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template"),
        *("tokenize", "tokenizer", "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token"),
        *("mask_token", "additional_special_tokens", "raise_exception", "strftime_now", "range", "dict", "namespace"),
        *("loop", "self", "super", "caller", "varargs", "kwargs", "true", "false", "none", "True", "False", "None"),
    }
)


def find_violations(chat: ChatPrompt, path: str = "chat") -> Iterator[FieldInvalid]:
    """Every rule of a field that the conversation breaks."""
    if not 1 <= len(chat.messages) <= MAX_MESSAGES:
        yield FieldInvalid(f"{path}.messages", f"{len(chat.messages)} messages, expected 1 to {MAX_MESSAGES}")
    for index, message in enumerate(chat.messages):
        yield from _message_violations(message, f"{path}.messages[{index}]")
    yield from _parse_violations(_parse_tools, chat.tools_json, f"{path}.tools_json")
    yield from _parse_violations(_parse_documents, chat.documents_json, f"{path}.documents_json")
    yield from _parse_violations(_parse_kwargs, chat.template_kwargs_json, f"{path}.template_kwargs_json")
    if chat.continue_final_message:
        if not chat.messages or chat.messages[-1].role != "assistant":
            yield FieldInvalid(f"{path}.continue_final_message", "the last message is not the assistant's")
        if chat.add_generation_prompt:
            yield FieldInvalid(f"{path}.continue_final_message", "add_generation_prompt is also set")
        for i, part in enumerate(chat.messages[-1].parts() if chat.messages else ()):
            if isinstance(part, Image):
                where = f"{path}.messages[{len(chat.messages) - 1}].parts[{i}].image"
                yield FieldInvalid(where, "in the message that is continued, expected text alone")


def offers_tools(chat: ChatPrompt) -> bool:
    """The conversation has tools."""
    try:
        return _parse_tools(chat.tools_json, "chat.tools_json") is not None
    except FieldInvalid:  # reported where it is rendered
        return False


def template_variables(chat: ChatPrompt, path: str = "chat", *, in_parts: bool = False) -> dict[str, object]:
    """The template's variables for a conversation whose fields are valid.

    A message with an image has its content as a list of parts; `in_parts`: every message has.
    """
    continues = bool(chat.continue_final_message)
    adds_prompt = not continues if chat.add_generation_prompt is None else chat.add_generation_prompt
    return {
        **_parse_kwargs(chat.template_kwargs_json, f"{path}.template_kwargs_json"),
        "messages": [
            _message_variables(message, f"{path}.messages[{index}]", in_parts=in_parts)
            for index, message in enumerate(chat.messages)
        ],
        "tools": _parse_tools(chat.tools_json, f"{path}.tools_json"),
        "documents": _parse_documents(chat.documents_json, f"{path}.documents_json"),
        "add_generation_prompt": adds_prompt,
        "continue_final_message": continues,
    }


def with_empty_content(variables: dict[str, object]) -> dict[str, object] | None:
    """The variables with empty content in place of none. None if every message has content."""
    messages = variables["messages"]
    assert isinstance(messages, list)
    if all("content" in each for each in messages):
        return None
    return {**variables, "messages": [{"content": "", **each} for each in messages]}


def _message_violations(message: ChatMessage, path: str) -> Iterator[FieldInvalid]:
    if not _ROLE.fullmatch(message.role):
        yield FieldInvalid(f"{path}.role", "expected 1 to 64 letters, digits, '_' or '-'")
    for field, value in (("name", message.name), ("tool_call_id", message.tool_call_id)):
        n_bytes = len(value.encode("utf-8", "surrogatepass"))
        if n_bytes > MAX_NAME_BYTES:
            yield FieldInvalid(f"{path}.{field}", f"{n_bytes} bytes, limit {MAX_NAME_BYTES}")
    yield from _parse_violations(_parse_tool_calls, message.tool_calls_json, f"{path}.tool_calls_json")


def _parse_violations(parse: object, text: str, path: str) -> Iterator[FieldInvalid]:
    assert callable(parse)
    try:
        parse(text, path)
    except FieldInvalid as error:
        yield error


def _message_variables(message: ChatMessage, path: str, *, in_parts: bool) -> dict[str, object]:
    role = TemplateText.trusted(message.role) if message.role in _USUAL_ROLES else message.role
    variables: dict[str, object] = {"role": role}
    # A template that prints null content would print "None". Without the key it prints nothing.
    if message.content is not None:
        is_text = not in_parts and not any(isinstance(part, Image) for part in message.parts())
        variables["content"] = message.text if is_text else _parts_variables(message.parts())
    if message.name:
        variables["name"] = message.name
    if message.tool_call_id:
        variables["tool_call_id"] = message.tool_call_id
    if message.tool_calls_json:
        variables["tool_calls"] = _parse_tool_calls(message.tool_calls_json, f"{path}.tool_calls_json")
    if message.reasoning_content:
        # Templates know it by one of two names.
        variables["reasoning_content"] = variables["thinking"] = message.reasoning_content
    return variables


def _parts_variables(parts: ContentParts) -> list[dict[str, str]]:
    return [{"type": "image"} if isinstance(each, Image) else {"type": "text", "text": each} for each in parts]


def _parse_tools(text: str, path: str) -> list[object] | None:
    if not text:
        return None
    tools = parse_strict_json(text, path, max_bytes=MAX_TOOLS_BYTES, max_depth=MAX_TOOLS_DEPTH)
    if not isinstance(tools, list):
        raise FieldInvalid(path, f"expected an array, found {type(tools).__name__}")
    return tools or None


def _parse_documents(text: str, path: str) -> list[object] | None:
    if not text:
        return None
    documents = parse_strict_json(text, path, max_bytes=MAX_DOCUMENTS_BYTES, max_depth=MAX_KWARGS_DEPTH)
    if not isinstance(documents, list) or not all(isinstance(each, dict) for each in documents):
        raise FieldInvalid(path, "expected an array of objects")
    return documents or None


def _parse_tool_calls(text: str, path: str) -> list[object]:
    if not text:
        return []
    calls = parse_strict_json(text, path, max_bytes=MAX_TOOLS_BYTES, max_depth=MAX_TOOLS_DEPTH)
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FieldInvalid(path, "expected an array of objects")
    return [_with_parsed_arguments(call, path) for call in calls]


def _with_parsed_arguments(call: dict[str, object], path: str) -> dict[str, object]:
    """The OpenAI shape has arguments as JSON in a string; most templates expect the object.

    For a call without arguments, some clients send an empty string.
    """
    function = call.get("function")
    given = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(given, str) and not given.strip():
        given = "{}"
    if not isinstance(function, dict) or not isinstance(given, (str, dict)):
        return call
    try:
        arguments = (
            parse_strict_json(given, path, max_bytes=MAX_TOOLS_BYTES, max_depth=MAX_TOOLS_DEPTH)
            if isinstance(given, str)
            else given
        )
    except FieldInvalid:
        # A model may have written arguments that are not JSON. The template then gets the string.
        return call
    if not isinstance(arguments, dict):
        return call
    text = given if isinstance(given, str) else None
    return {**call, "function": {**function, "arguments": JsonArguments(arguments, text)}}


def _parse_kwargs(text: str, path: str) -> dict[str, object]:
    if not text:
        return {}
    kwargs = parse_strict_json(text, path, max_bytes=MAX_KWARGS_BYTES, max_depth=MAX_KWARGS_DEPTH)
    if not isinstance(kwargs, dict):
        raise FieldInvalid(path, f"expected an object, found {type(kwargs).__name__}")
    for name in kwargs:
        if name in RESERVED_VARIABLES or not name.isidentifier() or name.startswith("_"):
            raise FieldInvalid(path, f"{name[:64]!r} is not a variable that a caller may set")
    return kwargs
