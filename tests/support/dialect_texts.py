"""Outputs as models of each dialect write them, made of parts by rules of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imp_service.text.channels.tools import Tool

Arguments = dict[str, object]

TYPES = {"text": "string", "count": "integer", "share": "number", "flag": "boolean", "list": "array", "more": "object"}
SCHEMA = {"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}}
TOOLS = tuple(Tool(name, SCHEMA, "") for name in ("find", "get_weather", "stop.all"))


@dataclass(frozen=True)
class Said:
    """The parts of an output."""

    content: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, Arguments]] = ()


def _thought(said: Said, begin: str, end: str) -> str:
    return begin + said.reasoning + end if said.reasoning else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _in_tags(said: Said, call: Callable[[str, Arguments], str]) -> str:
    blocks = [f"<tool_call>\n{call(*each)}\n</tool_call>" for each in said.calls]
    between = "\n" if said.content and blocks else ""
    return _thought(said, "<think>\n", "\n</think>\n\n") + said.content + between + "\n".join(blocks)


def hermes(said: Said) -> str:
    """Qwen3's framing."""
    return _in_tags(said, lambda name, arguments: f'{{"name": {_json(name)}, "arguments": {_json(arguments)}}}')


def qwen_xml(said: Said) -> str:
    """Qwen3-Coder's framing."""

    def call(name: str, arguments: Arguments) -> str:
        values = {key: value if isinstance(value, str) else _json(value) for key, value in arguments.items()}
        lines = [f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items()]
        return f"<function={name}>\n{''.join(lines)}</function>"

    return _in_tags(said, call)


def llama3(said: Said) -> str:
    """Llama 3.1's framing: calls alone, or content alone."""
    if not said.calls:
        return said.content
    return "; ".join(f'{{"name": {_json(name)}, "parameters": {_json(each)}}}' for name, each in said.calls)


def mistral(said: Said) -> str:
    """The list of Mistral Nemo."""
    calls = [{"name": name, "arguments": arguments} for name, arguments in said.calls]
    listed = "[TOOL_CALLS]" + _json(calls) if calls else ""
    return _thought(said, "[THINK]", "[/THINK]") + said.content + listed


def mistral_marked(said: Said) -> str:
    """The markers of newer models."""
    calls = "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}" for name, arguments in said.calls)
    return _thought(said, "[THINK]", "[/THINK]") + said.content + calls


# Writer -> the name of its dialect.
WRITERS: dict[Callable[[Said], str], str] = {
    hermes: "hermes",
    qwen_xml: "qwen-xml",
    llama3: "llama3",
    mistral: "mistral",
    mistral_marked: "mistral",
}
