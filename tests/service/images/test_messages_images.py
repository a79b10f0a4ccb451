"""Images in Anthropic's form: the pixels, limits and errors of the chat API."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from support.servers.http_served import HttpServed
from support.servers.messages_served import COUNT, PATH, answer, refusal, said
from support.servers.vision_served import CELLS, QUESTION, content_of, data_url, file_of, shown
from support.servers.vision_served import said as chat_said

PNG = file_of()
TEXT = {"type": "text", "text": QUESTION}


def block(data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}


def test_msg_4_an_image_is_that_of_the_chat_api(http: HttpServed) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
    chat = http.chat(shown(PNG), **options)
    by_url = {"type": "image", "source": {"type": "url", "url": data_url(PNG)}}
    for image in (block(PNG), by_url):
        found = answer(http, said([image, TEXT]), **options)
        assert found["content"][0]["text"] == chat.choice["message"]["content"]
        counted = http.client.post(COUNT, {"messages": said([image, TEXT])}).json["input_tokens"]
        assert counted == chat.json["usage"]["prompt_tokens"] > CELLS
    # The cache knows an image by its content.
    cached = [
        http.client.post(PATH, {"messages": said([block(file_of(seed)), TEXT]), **options}).json["usage"]
        for seed in (0, 1)
    ]
    assert cached[0]["cache_read_input_tokens"] > CELLS > cached[1]["cache_read_input_tokens"]


def test_msg_4_a_result_of_a_call_may_be_an_image(http: HttpServed) -> None:
    call = {"type": "tool_use", "id": "abc", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "abc", "content": [{"type": "text", "text": "Here:"}, block(PNG)]}
    history = [*said("Look."), {"role": "assistant", "content": [call]}, *said([result])]
    asked = {"messages": history, "tools": [{"name": "look", "input_schema": {"type": "object"}}]}
    assert http.client.post(COUNT, asked).json["input_tokens"] > CELLS
    assert http.client.post(PATH, {**asked, "max_tokens": 2}).status == 200
    broken = {**result, "content": [{"type": "text", "text": "Here:"}, block(b"no image")]}
    status, message = refusal(http, messages=[*history[:2], *said([TEXT, broken])], tools=asked["tools"])
    assert status == 400 and message.startswith("messages[2].content[1].content[1].source: "), message


@pytest.mark.parametrize("data", [b"", PNG[:-20], b"%PDF-1.7\n"], ids=["empty", "cut", "PDF"])
def test_msg_4_a_broken_image_is_refused_in_the_words_of_the_chat_api(http: HttpServed, data: bytes) -> None:
    status, message = refusal(http, messages=said([TEXT, block(data)]))
    known = http.chat(chat_said(content_of(data_url(data)))).error["message"]
    assert status == 400 and message.startswith("messages[0].content[1].source: ")
    assert message.partition(": ")[2] == known.partition(": ")[2]


def test_msg_4_more_images_than_a_request_may_have_are_refused(http: HttpServed) -> None:
    status, message = refusal(http, messages=[*said([block(PNG)] * 2), *said([block(PNG)] * 2)])
    known = http.chat([*shown(PNG), *shown(PNG), *shown(PNG), *shown(PNG)]).error["message"]
    assert status == 400 and message.partition(": ")[2] == known.partition(": ")[2]
    # Both messages are one turn, and each image is named where the request has it.
    assert message.startswith("messages[1].content[1].source: ")


def test_msg_4_only_a_body_with_images_may_be_large(http: HttpServed) -> None:
    padded = PNG + bytes(5 * 1024**2)
    assert http.client.post(PATH, {"messages": said([block(padded)]), "max_tokens": 1}).status == 200
    assert refusal(http, messages=said("a" * 5 * 1024**2))[0] == 413
