"""What a request says about the model's reasoning, as variables of its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from imp_service.http_api.requests.reading import Reading
from imp_service.serving.served_model import ServedModel

# Variables by which templates know whether the model is to reason: Qwen's and GLM's; DeepSeek's and Granite's.
SWITCHES = ("enable_thinking", "thinking")
# The effort of a model that does not reason.
NO_EFFORT = "none"


def template_variables(
    reading: Reading, served: ServedModel, efforts: Mapping[str, str | None], switches: Mapping[str, bool | None]
) -> str:
    """The variables of the chat template, as JSON.

    `efforts` and `switches` say how much and whether the model is to reason, by the fields that said so.
    """
    variables: dict[str, Any] = {}
    for name in {**efforts, **switches}:
        effort = efforts.get(name)
        is_on = False if effort == NO_EFFORT else switches.get(name)
        wanted = {"reasoning_effort": effort, **dict.fromkeys(SWITCHES, is_on)}
        _wish(reading, served, name, variables, {key: each for key, each in wanted.items() if each is not None})
    variables |= reading.get("chat_template_kwargs", {})
    return json.dumps(variables, ensure_ascii=False) if variables else ""


def bound_reasoning(reading: Reading, served: ServedModel, name: str, most: int | None) -> None:
    """Another name of `thinking_token_budget`, in an object of wishes: ignored where the model does not reason."""
    if most is None:
        return
    if served.reasons and reading.has("thinking_token_budget"):
        reading.also(name, "thinking_token_budget", most)
    else:
        reading.ignored.append(name)


def _wish(
    reading: Reading, served: ServedModel, name: str, variables: dict[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Sets variables of the template. A wish of which the template knows none is ignored."""
    if wanted and not any(map(served.template_has, wanted)):
        reading.ignored.append(name)
        return
    for variable, value in wanted.items():
        if variables.setdefault(variable, value) != value:
            reading.wrong(name, f"means {variable} = {json.dumps(value)}, but another field says the opposite")
            return
