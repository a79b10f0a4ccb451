"""The cost of reading a prompt, in bytes of text. It decides whether a worker does it."""

from __future__ import annotations

from imp_service.api.options import GenerationRequest, Prompt
from imp_service.serving.workers import SMALL_BYTES
from imp_service.text import ChatPrompt

# The cost of reading an id.
ID_BYTES = 4


def planning_bytes(wanted: GenerationRequest, *, renders_quickly: bool) -> int:
    """The cost of planning a generation. Some options take long even for a short prompt."""
    n_bytes = reading_bytes(wanted.prompt, renders_quickly=renders_quickly)
    takes_long = wanted.constraint is not None or wanted.sampling.has_breakers
    return max(SMALL_BYTES, n_bytes) if takes_long else n_bytes


def reading_bytes(prompt: Prompt, *, renders_quickly: bool) -> int:
    """The cost of tokenizing a prompt. `renders_quickly`: the chat template is cheap."""
    if isinstance(prompt, str):
        return len(prompt.encode())
    if isinstance(prompt, ChatPrompt):
        n_bytes = chat_bytes(prompt)
        return n_bytes if renders_quickly else max(SMALL_BYTES, n_bytes)
    return ids_bytes(len(prompt))


def ids_bytes(n_ids: int) -> int:
    """The cost of reading so many ids."""
    return ID_BYTES * n_ids


def chat_bytes(chat: ChatPrompt) -> int:
    """The bytes of all texts of a conversation."""
    texts = [chat.tools_json, chat.template_kwargs_json, chat.documents_json]
    for each in chat.messages:
        texts += [
            each.role,
            each.content or "",
            each.name,
            each.tool_call_id,
            each.tool_calls_json,
            each.reasoning_content,
        ]
    return sum(len(text.encode()) for text in texts)
