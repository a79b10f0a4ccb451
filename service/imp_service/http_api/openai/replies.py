"""The common parts of replies: head, prompt, finish reason and usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from imp_service.api.replies import Finished, Started, Usage
from imp_service.http_api.answers.endings import CUT, refuse_aborted
from imp_service.http_api.openai.logprobs import TokenTexts, prompt_entries
from imp_service.http_api.requests.generation import ParsedRequest

# How the ids of answers begin.
CHAT_PREFIX, COMPLETION_PREFIX, RESPONSE_PREFIX = "chatcmpl-", "cmpl-", "resp_"


@dataclass(frozen=True, slots=True)
class Head:
    """The first fields of every reply and of every event of one request."""

    id: str
    created: int
    model: str
    # Names what decides tokens here. Empty where an answer does not show it.
    system_fingerprint: str = ""

    def of(self, kind: str) -> dict[str, Any]:
        """The fields of an object of this kind."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


def prompt_fields(parsed: ParsedRequest, prompt: int, started: Started, token_texts: TokenTexts) -> dict[str, Any]:
    """The ids and the log probabilities of a prompt, where they are asked for."""
    found: dict[str, Any] = {}
    if parsed.returns_token_ids:
        found["prompt_token_ids"] = started.prompt.token_ids
    if parsed.requests[prompt].output.prompt_logprobs and not parsed.echo:
        found["prompt_logprobs"] = prompt_entries(token_texts, started.prompt)
    return found


def finish_reason(end: Finished, *, has_calls: bool = False) -> str:
    """OpenAI's finish reason of a choice. Raises if an operator aborted the choice."""
    refuse_aborted(end)
    if end.reason in CUT:
        return "length"
    return "tool_calls" if has_calls else "stop"


def usage_fields(usage: Usage) -> dict[str, Any]:
    """The tokens of a request."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens, **image_tokens(usage)},
    }


def image_tokens(usage: Usage) -> dict[str, int]:
    """The tokens of the prompt that are images, if there are any."""
    return {"image_tokens": usage.prompt_media_tokens} if usage.prompt_media_tokens else {}


def sum_of(usages: list[Usage]) -> Usage:
    """The tokens of several prompts together."""
    return Usage(
        sum(each.prompt_tokens for each in usages),
        sum(each.cached_prompt_tokens for each in usages),
        sum(each.output_tokens for each in usages),
        sum(each.draft_tokens for each in usages),
        sum(each.accepted_draft_tokens for each in usages),
    )
