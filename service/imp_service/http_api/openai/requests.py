"""Converts bodies of OpenAI's requests to generations of imp."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from imp_service.api.chat_prompt import InfillPrompt
from imp_service.api.content_parts import IMAGE_MEMBER
from imp_service.api.image import Image
from imp_service.api.options import (
    DENSE,
    TOP_LOGPROBS,
    GenerationRequest,
    OutputOptions,
    Prompt,
    SparsePrefillOptions,
)
from imp_service.api.rules import token_violations
from imp_service.http_api.openai.constraints import read_constraint
from imp_service.http_api.openai.messages import read_messages
from imp_service.http_api.openai.reasoning import chat_variables
from imp_service.http_api.openai.replies import CHAT_PREFIX, COMPLETION_PREFIX
from imp_service.http_api.openai.tools import read_tool_choice, read_tools
from imp_service.http_api.requests.generation import Caller, ParsedRequest, chunk_tokens, generation_request
from imp_service.http_api.requests.image_rules import image_rules
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.resuming import check_resuming
from imp_service.http_api.requests.tools import AUTO, tools_json
from imp_service.http_api.requests.values import (
    WrongValue,
    expected,
    flag,
    known_members,
    token_ids,
    within,
)
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import INFILL, PROMPT_BYTES, PROMPT_IDS, PROMPT_TEXT
from imp_service.serving.served_model import ServedModel
from imp_service.tables import LIMITS
from imp_service.text import ChatMessage, ChatPrompt

MAX_PROMPTS = 64
# OpenAI's default of `max_tokens`, for completions only.
COMPLETION_TOKENS = 16


def read_chat(reading: Reading, served: ServedModel, caller: Caller) -> ParsedRequest:
    """A chat completion. Raises FieldsInvalid with everything that is wrong."""
    reading.require("messages")
    messages = messages_of(reading, served)
    choice = reading.read("tool_choice", read_tool_choice, AUTO)
    chat = ChatPrompt(
        messages=messages,
        tools_json=tools_json(reading, reading.read("tools", read_tools, []), choice),
        add_generation_prompt=reading.get("add_generation_prompt"),
        continue_final_message=reading.get("continue_final_message"),
        template_kwargs_json=chat_variables(reading, served),
        documents_json=documents_of(reading),
    )
    _one_limit(reading)
    logprobs = reading.get("logprobs", False)
    if reading.get("top_logprobs") and not logprobs:
        reading.wrong("top_logprobs", "set, expected only with logprobs: true")
    output = OutputOptions(logprobs=logprobs, top_logprobs=reading.get("top_logprobs", 0), parse=True)
    request = generation_of(reading, chat, served, caller, output, tool_choice=choice.mode)
    return parsed_request(reading, [request], served, CHAT_PREFIX)


def messages_of(reading: Reading, served: ServedModel) -> tuple[ChatMessage, ...]:
    """The messages of a chat; none if they are unset or wrong. Errors about them get the caller's names."""
    no_messages: tuple[ChatMessage, ...] = ()
    has_developer, rules = served.template_has("developer"), image_rules(reading, served)
    messages = reading.read(
        "messages",
        lambda value: read_messages(value, has_developer=has_developer, rules=rules),
        no_messages,
        ignores_unknown=True,
    )
    reading.set_prompt_by("messages")
    for i, message in enumerate(messages):
        if message.tool_calls_json:
            reading.set_by(f"chat.messages[{i}].tool_calls_json", f"messages[{i}].tool_calls")
        name_images(reading, i, message, f"messages[{i}].content")
    return messages


def name_images(reading: Reading, number: int, message: ChatMessage, where: str) -> None:
    """Errors about the images of a message name the parts of its content, which is at `where`."""
    for i, part in enumerate(message.parts()):
        if isinstance(part, Image):
            reading.set_by(f"chat.messages[{number}].parts[{i}].image", f"{where}[{i}].{IMAGE_MEMBER}")


def read_completion(reading: Reading, served: ServedModel, caller: Caller) -> ParsedRequest:
    """A completion of one prompt or more. Raises FieldsInvalid with everything that is wrong."""
    reading.require("prompt")
    no_prompt: list[Prompt] = [""]
    prompts = _with_gaps(reading, reading.read("prompt", read_prompts, no_prompt))
    reading.set_prompt_by("prompt")
    reading.set_by("infill", "suffix")
    for i, prompt in enumerate(prompts):
        where = f"prompt[{i}]" if len(prompts) > 1 else "prompt"
        reading.add(_prompt_findings(reading, prompt, where, served))
    if len(prompts) > 1:
        n_bytes = sum(len(prompt.encode()) for prompt in prompts if isinstance(prompt, str))
        reading.add(PROMPT_BYTES.check(n_bytes, "prompt", served))
    reading.values.setdefault("max_tokens", COMPLETION_TOKENS)
    logprobs = reading.get("logprobs")
    scores_prompt = reading.get("echo", False) and logprobs is not None
    output = OutputOptions(
        logprobs=logprobs is not None,
        top_logprobs=logprobs or 0,
        prompt_logprobs=scores_prompt,
        prompt_token_ids=scores_prompt,
    )
    first = generation_of(reading, prompts[0], served, caller, output)
    if len(prompts) > 1:
        # The head of an answer says how its prompt was evaluated, before the others are.
        if first.sparse_prefill.is_wanted:
            reading.wrong("sparse_prefill", f"set with {len(prompts)} prompts, expected one")
        first = replace(first, sparse_prefill=SparsePrefillOptions(DENSE))
    requests = [replace(first, prompt=prompt) for prompt in prompts]
    return replace(parsed_request(reading, requests, served, COMPLETION_PREFIX), echo=reading.get("echo", False))


def read_prompts(value: Any) -> list[Prompt]:
    """The prompts of a completion."""
    found: list[Prompt] = [*prompts_in(value, MAX_PROMPTS)]
    return found


def prompts_in(value: Any, most: int) -> list[str | Sequence[int]]:
    """A text, a list of token ids, or a list of texts or lists of ids: at most so many."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise expected("a string, token ids, or a list of either", value)
    if all(type(each) is int for each in value):
        return [_ids(value)]
    if len(value) > most:
        raise WrongValue(f"{len(value)} entries, expected at most {most}")
    return [_prompt(each, f"[{i}]") for i, each in enumerate(value)]


def _prompt_findings(reading: Reading, prompt: Prompt, where: str, served: ServedModel) -> Iterator[Finding]:
    """What is wrong with one prompt of a completion."""
    if isinstance(prompt, tuple):
        yield from token_violations(where, prompt, served.n_tokens)
        yield from PROMPT_IDS.check(prompt, where, served)
    elif isinstance(prompt, InfillPrompt):
        yield from INFILL.check(prompt, "suffix", served)
    elif isinstance(prompt, str) and "prompt" in reading.values:
        yield from PROMPT_TEXT.check(prompt, where, served)


def _with_gaps(reading: Reading, prompts: list[Prompt]) -> list[Prompt]:
    """The prompts, which `suffix` makes texts with a gap."""
    suffix = reading.get("suffix")
    if not suffix:
        return prompts
    if reading.get("echo"):
        reading.wrong("echo", "set, expected only without suffix")
    if not all(isinstance(prompt, str) for prompt in prompts):
        reading.wrong("suffix", "set, expected only with a prompt that is text")
        return prompts
    return [InfillPrompt(str(prompt), suffix) for prompt in prompts]


def _prompt(value: Any, where: str) -> str | Sequence[int]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise expected("a string or a list of token ids", value, where)
    return within(where, _ids, value)  # type: ignore[no-any-return]


def _ids(value: Any) -> Sequence[int]:
    ids = token_ids(value)
    if not ids:
        raise expected("at least one token id", value)
    return ids


def generation_of(
    reading: Reading,
    prompt: Prompt,
    served: ServedModel,
    caller: Caller,
    output: OutputOptions,
    *,
    tool_choice: str = "",
) -> GenerationRequest:
    """The generation of one prompt. What is wrong is added to the reading."""
    asked = reading.get("prompt_logprobs")
    if asked is not None:
        reading.add(TOP_LOGPROBS.check(asked, "prompt_logprobs", served))
        n_top = max(output.top_logprobs, min(asked, LIMITS.top_logprobs))
        output = replace(output, prompt_logprobs=True, prompt_token_ids=True, top_logprobs=n_top)
    if reading.get("return_token_ids"):
        output = replace(output, prompt_token_ids=True)
    if reading.get("best_of", reading.get("n", 1)) != reading.get("n", 1):
        reading.wrong("best_of", f"{reading.get('best_of')}, expected the value of n, {reading.get('n', 1)}")
    for option, name in (("output.top_logprobs", "top_logprobs"), ("output.prompt_logprobs", "prompt_logprobs")):
        reading.set_by(option, name)
    return generation_request(
        reading,
        prompt,
        served,
        caller,
        constraint=read_constraint(reading),
        output=replace(output, special_tokens=not reading.get("skip_special_tokens", True)),
        tool_choice=tool_choice,
        parallel_tool_calls=reading.get("parallel_tool_calls", True),
    )


def parsed_request(
    reading: Reading, requests: Sequence[GenerationRequest], served: ServedModel, prefix: str = ""
) -> ParsedRequest:
    """The generations, and the form of their answer. Raises FieldsInvalid with everything that is wrong.

    `prefix`: of the ids of answers, if a stream of them can be resumed.
    """
    no_options: dict[str, bool] = {}
    options = reading.read("stream_options", _stream_options, no_options)
    if options and not reading.get("stream"):
        reading.wrong("stream_options", "set, expected only with stream: true")
    most = chunk_tokens(reading, served)
    resuming = check_resuming(reading, prefix, len(requests))
    reading.refuse()
    return ParsedRequest(
        requests,
        reading,
        is_streamed=reading.get("stream", False),
        includes_usage=options.get("include_usage", False),
        continuous_usage=options.get("continuous_usage_stats", False),
        returns_token_ids=reading.get("return_token_ids", False),
        chunk_tokens=most,
        resuming=resuming,
    )


def _stream_options(value: Mapping[str, Any]) -> dict[str, bool]:
    known = {"include_usage": (False, True), "continuous_usage_stats": (False, True), "include_obfuscation": (False,)}
    found = {}
    for name, each in known_members(value, known).items():
        found[name] = within(f".{name}", flag, each)
        if found[name] not in known[name]:
            raise WrongValue("true is not supported, expected false", f".{name}")
    return found


def _one_limit(reading: Reading) -> None:
    """`max_tokens` and `max_completion_tokens` are two names of one option."""
    old, new = reading.get("max_tokens"), reading.get("max_completion_tokens")
    if old is not None and new is not None and old != new:
        reading.wrong(reading.spelled("max_tokens"), f"{old}, expected the value of max_completion_tokens, {new}")


def documents_of(reading: Reading) -> str:
    """The documents of a conversation."""
    documents = reading.get("documents", [])
    return json.dumps(documents, ensure_ascii=False) if documents else ""
