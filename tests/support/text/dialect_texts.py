"""Writes outputs as models of each dialect do: by independent rules, or by a template that jinja2 renders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jinja2

from imp_service.text.channels.tools import Tool
from support.text.family_templates import FAMILIES, Family

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
    """Returns the output in Qwen3's framing."""
    return _in_tags(said, lambda name, arguments: f'{{"name": {_json(name)}, "arguments": {_json(arguments)}}}')


def qwen_xml(said: Said) -> str:
    """Returns the output in Qwen3-Coder's framing."""

    def call(name: str, arguments: Arguments) -> str:
        values = {key: value if isinstance(value, str) else _json(value) for key, value in arguments.items()}
        lines = [f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items()]
        return f"<function={name}>\n{''.join(lines)}</function>"

    return _in_tags(said, call)


def llama3(said: Said) -> str:
    """Returns the output in Llama 3.1's framing: only calls, or only content."""
    if not said.calls:
        return said.content
    return "; ".join(f'{{"name": {_json(name)}, "parameters": {_json(each)}}}' for name, each in said.calls)


def mistral(said: Said) -> str:
    """Returns the output with the calls in one list, as Mistral Nemo writes it."""
    calls = [{"name": name, "arguments": arguments} for name, arguments in said.calls]
    listed = "[TOOL_CALLS]" + _json(calls) if calls else ""
    return _thought(said, "[THINK]", "[/THINK]") + said.content + listed


def mistral_marked(said: Said) -> str:
    """Returns the output with a marker before each call, as newer Mistral models write it."""
    calls = "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}" for name, arguments in said.calls)
    return _thought(said, "[THINK]", "[/THINK]") + said.content + calls


def message_of(said: Said, family: Family | None = None) -> dict[str, object]:
    """Returns the assistant's message with these parts, as templates get it."""
    shape = "a1b2c3d4{n}" if family is None else family.call_id
    as_text = family is not None and family.adds_arguments
    calls = [
        {
            "id": shape.format(n=n, name=name),
            "type": "function",
            "function": {"name": name, "arguments": _json(arguments) if as_text else arguments},
        }
        for n, (name, arguments) in enumerate(said.calls)
    ]
    return {
        "role": "assistant",
        "content": said.content,
        **({"reasoning_content": said.reasoning} if said.reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _writer(row: str, family: Family) -> Callable[[Said], str]:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _json
    macros = environment.from_string(family.macro).module

    def write(said: Said) -> str:
        return str(macros.answer(message_of(said, family)))  # type: ignore[attr-defined]

    write.__name__ = row
    return write


# Writer -> the name of its dialect.
WRITERS: dict[Callable[[Said], str], str] = {
    hermes: "hermes",
    qwen_xml: "qwen-xml",
    llama3: "llama3",
    mistral: "mistral",
    mistral_marked: "mistral",
    **{_writer(row, family): family.dialect for row, family in FAMILIES.items()},
}
# The writers and templates that write either content or calls, and those that write no reasoning.
ONLY_CALLS = frozenset({"llama3", "tool-template:mistral", "tool-template:mistral-marked"})
WITHOUT_REASONING = ONLY_CALLS | {"command-r"}
