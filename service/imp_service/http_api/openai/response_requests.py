"""Converts bodies of /v1/responses to generations. Nothing is stored: each body has the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from imp_service.api.options import OutputOptions
from imp_service.http_api.openai.flat_tools import FUNCTION, read_flat_choice, read_flat_tools
from imp_service.http_api.openai.items import InputMessage, read_input
from imp_service.http_api.openai.reasoning import wished_variables
from imp_service.http_api.openai.replies import RESPONSE_PREFIX
from imp_service.http_api.openai.requests import generation_of, name_images, parsed_request
from imp_service.http_api.requests.generation import Caller, ParsedRequest
from imp_service.http_api.requests.image_rules import image_rules
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.reasoning import bound_reasoning
from imp_service.http_api.requests.tools import AUTO, Tool, tools_json
from imp_service.http_api.requests.values import WrongValue, only, only_or_ignored, read_members, shown, whole
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatMessage, ChatPrompt

LOGPROBS = "message.output_text.logprobs"
# Reasoning is sent as text, so there is nothing to add.
ENCRYPTED = "reasoning.encrypted_content"
# Only `effort` and OpenRouter's `max_tokens` have an effect. The other members have none in imp.
REASONING = {
    "effort": only("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "summary": only_or_ignored(("auto",), ("concise", "detailed")),
    "generate_summary": only_or_ignored(("auto",), ("concise", "detailed")),
    "mode": only("standard"),
    "context": only("auto"),
    "max_tokens": whole,
}


def read_response(reading: Reading, served: ServedModel, caller: Caller) -> ParsedRequest:
    """A response. Raises FieldsInvalid with everything that is wrong."""
    reading.require("input")
    no_input: list[InputMessage] = []
    has_developer, rules = served.template_has("developer"), image_rules(reading, served)
    conversation = reading.read(
        "input",
        lambda value: read_input(value, has_developer=has_developer, rules=rules),
        no_input,
        ignores_unknown=True,
    )
    no_reasoning: dict[str, Any] = {}
    reasoning = reading.read("reasoning", lambda value: read_members(value, REASONING), no_reasoning)
    bound_reasoning(reading, served, "reasoning.max_tokens", reasoning.get("max_tokens"))
    choice = reading.read("tool_choice", read_flat_choice, AUTO)
    no_tools: list[Tool | None] = []
    tools = reading.read("tools", read_flat_tools, no_tools, ignores_unknown=True)
    # The response repeats what the model was offered.
    reading.values["tools"] = [{"type": FUNCTION, **tool[FUNCTION]} for tool in tools if tool is not None]
    chat = ChatPrompt(
        messages=_messages(reading, conversation),
        tools_json=tools_json(reading, tools, choice, ".function"),
        template_kwargs_json=wished_variables(reading, served, {"reasoning.effort": reasoning.get("effort")}, {}),
    )
    request = generation_of(reading, chat, served, caller, _output(reading), tool_choice=choice.mode)
    parsed = parsed_request(reading, [request], served, RESPONSE_PREFIX)
    return replace(parsed, repeats_answer=True, token_by_token=request.output.logprobs)


def _messages(reading: Reading, conversation: Sequence[InputMessage]) -> tuple[ChatMessage, ...]:
    """The instructions, then the input. Errors name where each message came from."""
    instructions = reading.get("instructions")
    messages = [] if instructions is None else [ChatMessage("system", instructions)]
    reading.set_prompt_by("input")
    for i, each in enumerate(conversation, len(messages)):
        reading.set_by(f"chat.messages[{i}]", f"input{each.where}")
        name_images(reading, i, each.message, f"input{each.where}.{each.content}")
        reading.set_by(f"chat.messages[{i}].tool_call_id", f"input{each.where}.call_id")
        # Its calls may come from several items, of which this is the first.
        reading.set_by(f"chat.messages[{i}].tool_calls_json", f"input{each.where}")
    return (*messages, *(each.message for each in conversation))


def _output(reading: Reading) -> OutputOptions:
    no_names: Sequence[str] = ()
    included = reading.read("include", _included, no_names)
    n_top = reading.get("top_logprobs")
    return OutputOptions(logprobs=n_top is not None or LOGPROBS in included, top_logprobs=n_top or 0, parse=True)


def _included(names: Sequence[str]) -> Sequence[str]:
    for i, name in enumerate(names):
        if name not in (LOGPROBS, ENCRYPTED):
            raise WrongValue(f"{shown(name)} is not supported: expected {LOGPROBS} or {ENCRYPTED}", f"[{i}]")
    return names
