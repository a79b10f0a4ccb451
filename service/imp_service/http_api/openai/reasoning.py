"""What a request says about the model's reasoning, in the words of OpenAI and of other servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.reasoning import NO_EFFORT, bound_reasoning, template_variables
from imp_service.http_api.requests.values import flag, ignored, only, read_members, text, whole
from imp_service.serving.served_model import ServedModel

# OpenRouter's object. The reasoning is always sent.
ROUTED_REASONING: Mapping[str, Callable[[Any], Any]] = {
    "effort": text,
    "enabled": flag,
    "exclude": ignored,
    "max_tokens": whole,
    "summary": ignored,
}
# Anthropic's object.
THINKING: Mapping[str, Callable[[Any], Any]] = {
    "type": only("enabled", "disabled", "adaptive", "auto"),
    "budget_tokens": whole,
}


def chat_variables(reading: Reading, served: ServedModel) -> str:
    """The variables of a chat's template, as JSON. OpenAI has the effort in a field, OpenRouter in an object."""
    no_wishes: dict[str, Any] = {}
    routed = reading.read("reasoning", lambda value: read_members(value, ROUTED_REASONING), no_wishes)
    bound_reasoning(reading, served, "reasoning.max_tokens", routed.get("max_tokens"))
    efforts = {"reasoning_effort": reading.get("reasoning_effort"), "reasoning.effort": routed.get("effort")}
    return wished_variables(reading, served, efforts, {"reasoning.enabled": routed.get("enabled")})


def wished_variables(
    reading: Reading, served: ServedModel, efforts: Mapping[str, str | None], switches: Mapping[str, bool | None]
) -> str:
    """The variables of the chat template, as JSON. The arguments are those of template_variables().

    Fields that chats and responses have alike say more.
    """
    no_members: dict[str, Any] = {}
    thinking = reading.read("thinking", lambda value: read_members(value, THINKING), no_members)
    bound_reasoning(reading, served, "thinking.budget_tokens", thinking.get("budget_tokens"))
    think = reading.get("think")
    efforts = {**efforts, "think": think if isinstance(think, str) else None}
    switches = {
        **switches,
        "think": None if think is None else think is not False and think != NO_EFFORT,
        "enable_thinking": reading.get("enable_thinking"),
        "thinking": thinking.get("type", "enabled") != "disabled" if "thinking" in reading.values else None,
    }
    return template_variables(reading, served, efforts, switches)
