"""A conversation as callers send it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; empty strings are absent fields. The content None is null in the template."""

    role: str
    content: str | None
    name: str = ""
    tool_call_id: str = ""
    tool_calls_json: str = ""
    reasoning_content: str = ""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """`imp.v1.ChatPrompt`; None is an absent field."""

    messages: tuple[ChatMessage, ...]
    tools_json: str = ""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    template_kwargs_json: str = ""
    documents_json: str = ""
