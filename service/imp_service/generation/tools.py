"""Resolves a request's tools and tool choice: how its output is parsed, and the constraint that calls match."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from imp_service.api.errors import Violation, invalid, refuse
from imp_service.api.options import BY_NAME, FORCED, GenerationRequest
from imp_service.generation.reasoning import prompt_end
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatPrompt, ConstraintSpec
from imp_service.text.channels.call_constraint import CallConstraint, Function
from imp_service.text.channels.channel_stream import ParsePlan
from imp_service.text.channels.find_dialect import opens_reasoning
from imp_service.text.channels.tools import Tool, read_tools


def parse_plan(request: GenerationRequest, text: TextSide, seed: int, prompt_ids: list[int]) -> ParsePlan:
    """How the outputs of a request are parsed."""
    end = prompt_end(text.tokenizer, prompt_ids)
    tools = read_tools(request.prompt.tools_json) if isinstance(request.prompt, ChatPrompt) else None
    dialect = text.calls_dialect if tools else text.dialect
    calls = request.constraint if isinstance(request.constraint, CallConstraint) else None
    return ParsePlan(
        dialect,
        opens_reasoning(dialect, end),
        tools,
        (seed, _digest(prompt_ids)),
        ends_after_call=not request.parallel_tool_calls,
        is_forced=calls is not None and calls.content is None,
    )


def _digest(tokens: list[int]) -> str:
    return blake2b(array("i", tokens).tobytes(), digest_size=16).hexdigest()


def resolve_tools(request: GenerationRequest, text: TextSide) -> GenerationRequest:
    """The request with its choice resolved: the model sees the tools or not, and a constraint forces a required call.
    If the model decides, the output is calls, or content that the request's constraint allows.
    """
    prompt, choice = request.prompt, request.tool_choice
    tools = read_tools(prompt.tools_json) if isinstance(prompt, ChatPrompt) else ()
    refuse(_violations(request, tools))
    if not isinstance(prompt, ChatPrompt) or not prompt.tools_json:
        return replace(request, tool_choice="")
    if choice == "none":
        return replace(request, prompt=replace(prompt, tools_json=""), tool_choice="")
    if tools and text.is_plain_by_settings and not _is_forced(choice):
        words = "model.overrides.dialect is plain, so all output is content: expected a tool_choice that forces a call"
        raise invalid("chat.tools_json", words)
    if _is_forced(choice):
        calls = _calls(request, prompt, tools, text)
        return replace(request, constraint=calls, tool_choice="", parallel_tool_calls=True)
    if tools and isinstance(request.constraint, ConstraintSpec):
        calls = _calls(request, prompt, tools, text)
        return replace(request, constraint=replace(calls, content=request.constraint), tool_choice="")
    return replace(request, tool_choice="")


def _is_forced(choice: str) -> bool:
    return choice == FORCED or choice.startswith(BY_NAME)


def _calls(request: GenerationRequest, prompt: ChatPrompt, tools: tuple[Tool, ...], text: TextSide) -> CallConstraint:
    dialect, choice = text.calls_dialect, request.tool_choice
    is_named = choice.startswith(BY_NAME)
    named = [tool for tool in tools if not is_named or tool.name == choice.removeprefix(BY_NAME)]
    return CallConstraint(
        dialect,
        tuple(map(Function.of, named)),
        allows_several=not is_named and request.parallel_tool_calls and dialect.forms[0].begin is not None,
        in_reasoning=dialect.reasoning is not None and opens_reasoning(dialect, text.render(prompt).text),
        control=_control_tokens(text),
    )


def _control_tokens(text: TextSide) -> tuple[tuple[str, int], ...]:
    """The framing texts that are control tokens of the vocabulary."""
    framing = text.tokenizer.table.special - text.calls_table.special
    return tuple((text.tokenizer.token_bytes(token).decode(), token) for token in sorted(framing))


def _violations(request: GenerationRequest, tools: tuple[Tool, ...]) -> Iterator[Violation]:
    choice = request.tool_choice
    if not _is_forced(choice):
        if tools and choice != "none" and not (request.parallel_tool_calls or request.output.has_channels):
            yield Violation("parallel_tool_calls", "false, expected output.parse or a tool_choice that forces a call")
        return
    names = [tool.name for tool in tools]
    if not names:
        yield Violation("tool_choice", f"{choice[:80]!r}, expected tools in the chat")
    elif choice != FORCED and choice.removeprefix(BY_NAME) not in names:
        yield Violation("tool_choice", f"{choice[:80]!r}, expected a function of the chat's tools")
