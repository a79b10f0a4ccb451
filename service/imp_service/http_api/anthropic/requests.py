"""Converts bodies of Anthropic's requests to generations of imp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from imp_service.api.image import Image
from imp_service.api.options import GenerationRequest, OutputOptions
from imp_service.http_api.anthropic.history import ASSISTANT, SYSTEM, HistoryTurn, read_history, read_system
from imp_service.http_api.anthropic.replies import PREFIX
from imp_service.http_api.anthropic.tools import read_tool_choice, read_tools
from imp_service.http_api.requests.constraints import OWN, one_constraint
from imp_service.http_api.requests.generation import Caller, ParsedRequest, chunk_tokens, generation_request
from imp_service.http_api.requests.image_rules import ImageRules, image_rules
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.reasoning import bound_reasoning, template_variables
from imp_service.http_api.requests.resuming import check_resuming
from imp_service.http_api.requests.tools import AUTO, Tool, ToolChoice, tools_json
from imp_service.http_api.requests.values import (
    WrongValue,
    members,
    only,
    only_or_ignored,
    read_members,
    whole,
)
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatMessage, ChatPrompt, ConstraintKind, ConstraintSpec

THINKING = {
    "type": only("enabled", "disabled", "adaptive", "between_tools"),
    "budget_tokens": whole,
    # The reasoning is always sent.
    "display": only_or_ignored(("summarized",), ("omitted",)),
}


def read_message(reading: Reading, served: ServedModel, caller: Caller) -> ParsedRequest:
    """A message, or one whose prompt is counted. Raises FieldsInvalid with everything that is wrong."""
    reading.require("messages")
    request = _generation(reading, served, caller)
    most = chunk_tokens(reading, served)
    resuming = check_resuming(reading, PREFIX, 1)
    reading.refuse()
    return ParsedRequest(
        [request],
        reading,
        is_streamed=reading.get("stream", False),
        chunk_tokens=most,
        resuming=resuming,
    )


def _generation(reading: Reading, served: ServedModel, caller: Caller) -> GenerationRequest:
    messages = _messages(reading, image_rules(reading, served))
    choice, is_parallel = reading.read("tool_choice", read_tool_choice, (AUTO, True))
    constraint = one_constraint(reading, {"output_config": _output_config, **OWN}, lambda _: ".format.schema")
    no_thinking: dict[str, Any] = {}
    thinking = reading.read("thinking", _thinking, no_thinking)
    bound_reasoning(reading, served, "thinking.budget_tokens", thinking.get("budget_tokens"))
    chat = ChatPrompt(
        messages=messages,
        tools_json=_tools(reading, choice),
        # A last message of the assistant is the begin of the answer.
        continue_final_message=True if messages and messages[-1].role == ASSISTANT else None,
        template_kwargs_json=template_variables(
            reading,
            served,
            {"output_config.effort": reading.get("output_config", {}).get("effort")},
            {"thinking": thinking.get("type") != "disabled" if thinking else None},
        ),
    )
    return generation_request(
        reading,
        chat,
        served,
        caller,
        constraint=constraint,
        output=OutputOptions(parse=True),
        tool_choice=choice.mode,
        parallel_tool_calls=is_parallel,
    )


def _messages(reading: Reading, rules: ImageRules) -> tuple[ChatMessage, ...]:
    """The system message, then the turns. Errors name where each came from."""
    no_turns: list[HistoryTurn] = []
    system = reading.read("system", lambda value: read_system(value, rules), "", ignores_unknown=True)
    turns = reading.read("messages", lambda value: read_history(value, rules), no_turns, ignores_unknown=True)
    reading.set_prompt_by("messages")
    messages = []
    if system:
        reading.set_by("chat.messages[0]", "system")
        messages.append(ChatMessage(SYSTEM, system))
    for i, turn in enumerate(turns, len(messages)):
        reading.set_by(f"chat.messages[{i}]", f"messages{turn.where}")
        _name_images(reading, i, turn)
    return (*messages, *(turn.whole for turn in turns))


def _name_images(reading: Reading, number: int, turn: HistoryTurn) -> None:
    """Errors about images name their sources."""
    for i, (part, where) in enumerate(turn.said):
        if isinstance(part, Image):
            reading.set_by(f"chat.messages[{number}].parts[{i}].image", f"messages{where}.source")


def _tools(reading: Reading, choice: ToolChoice) -> str:
    no_tools: Sequence[Tool] = ()
    tools = reading.read("tools", read_tools, no_tools, ignores_unknown=True)
    for i in range(len(tools)):
        reading.set_by(f"chat.tools_json[{i}].function.parameters", f"tools[{i}].input_schema")
    return tools_json(reading, tools, choice, ".function")


def _thinking(value: Any) -> dict[str, Any]:
    found = read_members(value, THINKING)
    if "type" not in found:
        raise WrongValue("not set", ".type")
    return found


def _output_config(value: Any) -> ConstraintSpec | None:
    return read_members(value, OUTPUT_CONFIG).get("format")


def _format(value: Any) -> ConstraintSpec:
    """The schema of the output. As in Anthropic's API, one that cannot be enforced is refused."""
    found = read_members(value, {"type": only("json_schema"), "schema": members})
    if "schema" not in found:
        raise WrongValue("not set", ".schema")
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(found["schema"], ensure_ascii=False))


OUTPUT_CONFIG = {"effort": only("low", "medium", "high", "xhigh", "max"), "format": _format}
