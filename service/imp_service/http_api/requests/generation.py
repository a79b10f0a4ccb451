"""Generations of imp from the fields of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from imp_service.api.arguments import GROUPS
from imp_service.api.facts import findings
from imp_service.api.options import ChunkOptions, DryOptions, GenerationRequest, Prompt
from imp_service.http_api.requests.option_rows import REQUEST
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.resuming import FIELD, Resuming
from imp_service.http_api.requests.values import NO_LIMIT
from imp_service.serving.rules.generation_rules import CHAT, generation_findings
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatPrompt

# Keeps only the most likely token, as 0 does in OpenAI's API. imp has no top_p of 0.
SMALLEST_TOP_P = 1e-38


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller's options that are headers of the request."""

    priority: int = 0
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One HTTP request, read and checked."""

    # One for each prompt. Choices are numbered over all prompts: those of the second follow those of the first.
    requests: Sequence[GenerationRequest]
    # Names the caller's field in an error about an option.
    reading: Reading
    is_streamed: bool = False
    includes_usage: bool = False
    continuous_usage: bool = False
    echo: bool = False
    returns_token_ids: bool = False
    # The last events of a stream repeat the whole answer.
    repeats_answer: bool = False
    # Each token is its own reply, also without streaming: so log probabilities stay with the token's item.
    token_by_token: bool = False
    # The most tokens of an event; None: the server's setting.
    chunk_tokens: int | None = None
    # Set by a caller that can resume the stream.
    resuming: Resuming | None = None

    def caller_path(self, path: str, prompt: int) -> str:
        """The caller's path of an option's path, in an error about the generation of a prompt."""
        found = self.reading.caller_path(path)
        return f"prompt[{prompt}]" if found == "prompt" and len(self.requests) > 1 else found


def generation_request(
    reading: Reading, prompt: Prompt, served: ServedModel, caller: Caller, **parts: Any
) -> GenerationRequest:
    """The generation of one prompt, with the options that the fields set. What is wrong is added to the reading.

    `parts`: what the API reads in its own way.
    """
    own = {"prompt": prompt, "tenant": caller.tenant, **parts}
    request = GenerationRequest(**{"priority": caller.priority, **options_of(reading, served), **own})
    resuming: Resuming | None = reading.get(FIELD)
    if resuming is not None:
        request = replace(request, resume=resuming.with_sequences(request.num_sequences))
    reading.add(generation_findings(request, served))
    if isinstance(prompt, ChatPrompt) and reading.values.keys() & {"messages", "input"}:
        reading.add(CHAT.check(prompt, "chat", served))
    return request


def options_of(reading: Reading, served: ServedModel) -> dict[str, Any]:
    """The options of the request that the fields set."""
    groups = {name: reading.options(name) for name in GROUPS}
    stop, sampling = groups["stop"], groups["sampling"]
    stop.setdefault("time_limit", served.settings.limits.request_time.total_seconds())
    if stop.get("max_tokens") == NO_LIMIT:
        stop["max_tokens"] = None
    if sampling.get("top_p") == 0:
        sampling["top_p"] = SMALLEST_TOP_P
    if dry := reading.options("sampling.dry"):
        sampling["dry"] = DryOptions(**dry)
    groups["cache"]["bypass_prefix"] = not reading.get("cache_prompt", True)
    found = {name: replace(GROUPS[name], **given) for name, given in groups.items() if name != "output"}
    return found | {row.option: reading.get(name) for name, row in REQUEST.items() if name in reading.values}


def chunk_tokens(reading: Reading, served: ServedModel) -> int | None:
    """The most tokens of an event. What is wrong is added to the reading."""
    chunks = ChunkOptions(reading.get("max_chunk_tokens"))
    reading.add(findings(chunks, served, "output"))
    return chunks.max_chunk_tokens
