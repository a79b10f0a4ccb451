"""Prompts of imp.v1 as the text room takes them."""

from __future__ import annotations

from imp_service.pb import types_pb2
from imp_service.text import ChatMessage, ChatPrompt


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
