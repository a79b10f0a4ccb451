"""The cost of reading a prompt, in bytes of text. It decides whether a worker does it."""

from __future__ import annotations

from collections.abc import Iterable

from imp_service.api.chat_prompt import InfillPrompt, PromptParts, has_images, images_of
from imp_service.api.image import Image
from imp_service.api.options import GenerationRequest, Prompt
from imp_service.api.vectors import TextOrIds
from imp_service.serving.workers import SMALL_BYTES
from imp_service.text import ChatPrompt

# The cost of reading an id.
ID_BYTES = 4


def planning_bytes(wanted: GenerationRequest, *, renders_quickly: bool) -> int:
    """The cost of planning a generation. Some options take long even for a short prompt."""
    n_bytes = reading_bytes(wanted.prompt, renders_quickly=renders_quickly)
    has_budget = wanted.max_reasoning_tokens is not None
    takes_long = wanted.constraint is not None or wanted.sampling.has_breakers or has_budget
    return max(SMALL_BYTES, n_bytes) if takes_long else n_bytes


def reading_bytes(prompt: Prompt, *, renders_quickly: bool) -> int:
    """The cost of tokenizing a prompt. `renders_quickly`: the chat template is cheap."""
    if isinstance(prompt, str):
        return len(prompt.encode())
    if isinstance(prompt, ChatPrompt):
        n_bytes = chat_bytes(prompt)
        is_quick = renders_quickly and not has_images(prompt)
        return n_bytes if is_quick else max(SMALL_BYTES, n_bytes)
    if isinstance(prompt, InfillPrompt):
        return sum(len(text.encode()) for text in prompt.texts())
    if isinstance(prompt, PromptParts):
        costs = (reading_bytes(part, renders_quickly=True) for part in prompt.parts if not isinstance(part, Image))
        return max(SMALL_BYTES, sum(costs))
    return ids_bytes(len(prompt))


def image_bytes(prompt: Prompt) -> int:
    """The bytes of a prompt's images, as they were sent."""
    return sum(len(image.data) for _, image in images_of(prompt))


def inputs_bytes(inputs: Iterable[TextOrIds]) -> int:
    """The cost of tokenizing texts, or of reading their ids."""
    return sum(reading_bytes(each, renders_quickly=True) for each in inputs)


def ids_bytes(n_ids: int) -> int:
    """The cost of reading so many ids."""
    return ID_BYTES * n_ids


def chat_bytes(chat: ChatPrompt) -> int:
    """The bytes of all texts of a conversation."""
    texts = [chat.tools_json, chat.template_kwargs_json, chat.documents_json]
    for each in chat.messages:
        texts += [
            each.role,
            each.text,
            each.name,
            each.tool_call_id,
            each.tool_calls_json,
            each.reasoning_content,
        ]
    return sum(len(text.encode()) for text in texts)
