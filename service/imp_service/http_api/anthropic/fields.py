"""The fields of Anthropic's requests as data: docs/anthropic.md is made from these tables.

The options of imp that Anthropic's API does not have are fields too, under the names that they have in OpenAI's API.
"""

from __future__ import annotations

from imp_service.http_api.requests import values
from imp_service.http_api.requests.option_rows import (
    OF_MODEL,
    OWN_CONSTRAINTS,
    RESUME,
    SAMPLING,
    SERVING,
    STOP,
    STREAM,
)
from imp_service.http_api.requests.rows import Accepted, Ignored, Refused, Sets, Table

# The caller's own name of the option `stop.strings`.
STOPS = "stop_sequences"

# What decides the prompt. Both paths have it.
PROMPT: Table = {
    "messages": Sets(values.entries, "chat.messages", "the conversation"),
    "system": Sets(values.anything, "", "the system message, before the conversation: a string or text blocks"),
    "tools": Sets(values.entries, "chat.tools_json", "functions that the model may call"),
    "tool_choice": Sets(
        values.members, "tool_choice", "`auto`, `any`, `tool` or `none`, and `disable_parallel_tool_use`"
    ),
    "thinking": Sets(
        values.members,
        "",
        "`enabled`, `adaptive` or `disabled`: variables of the model's chat template; `budget_tokens` as "
        "`thinking_token_budget`",
    ),
    "output_config": Sets(
        values.members, "", "`format`: a JSON Schema; `effort`: a variable of the model's chat template"
    ),
    "model": SERVING["model"],
    **OF_MODEL,
}
WITHOUT_EFFECT: Table = {
    "metadata": Accepted(values.members, "not used"),
    "cache_control": Accepted(values.members, "prefixes are cached by their content"),
    "service_tier": Accepted(values.only("auto", "standard_only"), "there is one tier"),
    "speed": Accepted(values.only_or_ignored(("standard",), ("fast",)), "there is one speed"),
    "inference_geo": Ignored("imp runs where it runs"),
    "context_management": Ignored("input beyond the context is refused; the client shortens its conversation"),
    "diagnostics": Ignored("the metrics tell how many tokens came from the cache"),
    **dict.fromkeys(
        ("betas", "billing_policy", "user_profile_id", "workspace_id", "fallback_credit_token"), Ignored("not used")
    ),
}
UNSUPPORTED: Table = {
    "mcp_servers": Refused("imp runs no tools: offer them as `tools`, and run their calls in the client"),
    "container": Refused("imp runs no code"),
    "fallbacks": Refused("imp serves one model"),
    "compaction": Refused("send a shorter conversation"),
    "thread": Refused("conversations are not stored: send all of it as `messages`"),
    "output_format": Refused("use `output_config` with `format`"),
    "prompt": Refused("use `messages`"),
}
MESSAGES: Table = {
    **PROMPT,
    "max_tokens": Sets(values.whole, "stop.max_tokens", "unset or -1: up to the context's end"),
    STOPS: Sets(values.texts, "stop.strings", "strings that end the output"),
    **SAMPLING,
    **{name: row for name, row in STOP.items() if name != "stop"},
    **OWN_CONSTRAINTS,
    **STREAM,
    **RESUME,
    **SERVING,
    **WITHOUT_EFFECT,
    **UNSUPPORTED,
    "stop": Refused(f"use `{STOPS}`"),
    "n": Refused("send the request again with another `seed`"),
}
COUNT_TOKENS: Table = {
    **PROMPT,
    **{name: row for name, row in WITHOUT_EFFECT.items() if name != "metadata"},
    **UNSUPPORTED,
}
