"""Prompts of imp.v1 as the text room takes them."""

from __future__ import annotations

from imp_service.generation.options import Prompt
from imp_service.pb import types_pb2
from imp_service.serving.workers import SMALL_BYTES
from imp_service.text import ChatMessage, ChatPrompt

# What reading an id costs, in bytes of text.
ID_BYTES = 4


def read_chat(chat: types_pb2.ChatPrompt) -> ChatPrompt:
    """A conversation."""
    return ChatPrompt(
        messages=tuple(
            ChatMessage(each.role, each.content, each.name, each.tool_call_id, each.tool_calls_json)
            for each in chat.messages
        ),
        tools_json=chat.tools_json,
        add_generation_prompt=chat.add_generation_prompt if chat.HasField("add_generation_prompt") else None,
        continue_final_message=chat.continue_final_message if chat.HasField("continue_final_message") else None,
        template_kwargs_json=chat.template_kwargs_json,
    )


def chat_bytes(chat: ChatPrompt) -> int:
    """Bytes of all its texts."""
    texts = [chat.tools_json, chat.template_kwargs_json]
    for each in chat.messages:
        texts += [each.role, each.content, each.name, each.tool_call_id, each.tool_calls_json]
    return sum(len(text.encode()) for text in texts)


def reading_bytes(prompt: Prompt) -> int:
    """What a prompt costs to read, in bytes of text: it decides what is done on the event loop."""
    if isinstance(prompt, str):
        return len(prompt.encode())
    if isinstance(prompt, ChatPrompt):
        # A template may take long over a short conversation.
        return max(SMALL_BYTES, chat_bytes(prompt))
    return ID_BYTES * len(prompt)
