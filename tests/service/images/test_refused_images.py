"""What is wrong with the images of a request is said at their fields, in the words of each door, before any work."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service.media import ImagePlan, ImagesRefused
from imp_service.pb import types_pb2
from support.media.png_writer import RGB, png
from support.models.tiny_vision_models import TEMPLATE, TEMPLATE_OF_PARTS
from support.run.patience import HANGS_AFTER
from support.servers.http_served import HttpServed, serve_http
from support.servers.served import Served, serve
from support.servers.vision_served import (
    CELLS,
    QUESTION,
    answer_of,
    asked,
    chat_of,
    content_of,
    data_url,
    encoded,
    file_of,
    images_of,
    raw,
    refused_by,
    said,
    shown,
    vision_model,
)

MIB = 1024**2
PNG = file_of()
# A header that claims 65,535 pixels a side, and no data.
HUGE = PNG[:16] + (65_535).to_bytes(4, "big") * 2 + PNG[24:29] + bytes(4)
LONG = png(np.zeros((1, 16_385, 3), np.uint8), RGB)


def paths_of(served: Served, prompt: types_pb2.ChatPrompt | types_pb2.PromptParts) -> list[str]:
    call = refused_by(served, prompt)
    assert call.reason == "FIELD_INVALID", call.message
    return call.paths


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no PNG, JPEG, WebP or GIF"),
    "one byte": (b"\x89", "no PNG, JPEG, WebP or GIF"),
    "a text": (b"GIFT of the magi", "no PNG, JPEG, WebP or GIF"),
    "PDF": (b"%PDF-1.7\n", "no PNG, JPEG, WebP or GIF"),
    "BMP": (b"BM" + bytes(60), "BMP"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "cut": (PNG[:-20], "damaged PNG"),
    "huge": (HUGE, "PNG"),
    "long": (LONG, "media.side"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_vis_5_what_is_no_image_is_refused_at_its_field(http: HttpServed, served: Served, case: str) -> None:
    data, words = BAD_FILES[case]
    call = refused_by(served, chat_of(QUESTION, encoded(data)))
    assert call.paths == ["request.chat.messages[0].parts[1].image"] and words in call.message
    reply = http.chat(said(content_of({"url": data_url(data)})))
    assert reply.refusal == (400, "field_invalid", "messages[0].content[0].image_url")
    assert words in reply.error["message"]


def test_vis_5_everything_wrong_is_said_at_once(http: HttpServed, served: Served) -> None:
    chat = chat_of(encoded(b"a"), QUESTION, encoded(b"b"))
    assert paths_of(served, chat) == [f"request.chat.messages[0].parts[{i}].image" for i in (0, 2)]
    parts = types_pb2.PromptParts(parts=[types_pb2.PromptPart(image=encoded(b"a"))] * 2)
    assert paths_of(served, parts) == [f"request.parts.parts[{i}].image" for i in (0, 1)]
    wrong = [*content_of(data_url(b"a")), *content_of(data_url(b"b"))]
    message = http.chat(said(wrong)).error["message"]
    assert "messages[0].content[0].image_url: " in message and "messages[0].content[2].image_url: " in message


WRONG_FORMS: dict[str, tuple[types_pb2.ChatPrompt, str]] = {
    "too few bytes": (chat_of(types_pb2.Image(raw=types_pb2.RawImage(width=2, height=2, rgb=b"12"))), "parts[0].image"),
    "no rows": (chat_of(types_pb2.Image(raw=types_pb2.RawImage(width=5, height=0))), "parts[0].image"),
    "2^32 bytes": (chat_of(types_pb2.Image(raw=types_pb2.RawImage(width=65_536, height=65_536))), "parts[0].image"),
    "no source": (chat_of(types_pb2.Image()), "parts[0].image"),
    "no kind": (types_pb2.ChatPrompt(messages=[{"role": "user", "parts": [types_pb2.ContentPart()]}]), "parts[0]"),
    "bounded": (chat_of(encoded(PNG, max_tokens=64)), "parts[0].image.max_tokens"),
    "four": (chat_of(*[encoded(PNG)] * 4), "parts[3].image"),
    "continued": (
        chat_of(encoded(PNG), "It is", role="assistant", continue_final_message=True),
        "parts[0].image",
    ),
}


@pytest.mark.parametrize("case", WRONG_FORMS)
def test_vis_5_wrong_forms_of_images_are_refused(served: Served, case: str) -> None:
    chat, path = WRONG_FORMS[case]
    assert paths_of(served, chat) == [f"request.chat.messages[0].{path}"]


def test_vis_5_a_message_has_content_or_parts(served: Served) -> None:
    both = chat_of(encoded(PNG))
    both.messages[0].content = "a"
    assert paths_of(served, both) == ["request.chat.messages[0].parts"]
    text = answer_of(served, chat_of("a", "b"))
    content = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="ab")])
    assert text.output == answer_of(served, content).output


ADDRESSES = (
    "http://169.254.169.254/latest",
    "https://example.com/a.png",
    "file:///etc/passwd",
    "ftp://example.com/a.png",
    "//example.com/a.png",
    "data:image/png,abc",
    "data:image/png;base64;charset=utf-8,aaaa",
    "data:image/png;base64,a",
    "data:image/png;base64,aa aa",
)


@pytest.mark.parametrize("url", ADDRESSES)
def test_vis_5_no_address_is_fetched(http: HttpServed, url: str) -> None:
    for given, where in ((url, "image_url"), ({"url": url}, "image_url.url")):
        reply = http.chat(said(content_of(given)))
        assert reply.refusal == (400, "field_invalid", f"messages[0].content[0].{where}")
        assert "data:" in reply.error["message"] or "base64" in reply.error["message"]


WRONG_PARTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "image_url", "image_url": {"url": data_url(PNG), "detail": "ultra"}}, "image_url.detail"),
    ({"type": "image_url", "image_url": {"detail": "low"}}, "image_url.url"),
    ({"type": "image_url", "image_url": 7}, "image_url"),
    ({"type": "image_url", "image_url": {"url": data_url(PNG), "size": 3}}, "image_url.size"),
    ({"type": "input_image", "file_id": "file-1"}, "file_id"),
    ({"type": "input_audio", "input_audio": {"data": ""}}, "type"),
)


@pytest.mark.parametrize(("part", "where"), WRONG_PARTS)
def test_vis_5_wrong_members_of_a_part_are_refused(http: HttpServed, part: dict[str, Any], where: str) -> None:
    reply = http.chat(said([part]))
    if where.endswith("size"):
        # Unknown members of messages are ignored, and the reply says so.
        assert reply.status == 200 and where in reply.headers["imp-ignored"]
    else:
        assert reply.refusal == (400, "field_invalid", f"messages[0].content[0].{where}")


def test_vis_5_numbers_of_an_image_processor_are_refused_at_their_field(http: HttpServed) -> None:
    numbers = {"max_pixels": 10_000}
    replies = [http.chat(shown(PNG), mm_processor_kwargs=numbers)]
    for path, body in (("/v1/responses", {"input": QUESTION}), ("/tokenize", {"messages": shown(PNG)})):
        replies.append(http.client.post(path, {**body, "mm_processor_kwargs": numbers}))
    for reply in replies:
        error = json.loads(reply.content)["error"]
        assert (reply.status, error["param"]) == (400, "mm_processor_kwargs.max_pixels")
        assert "fixed number of tokens" in error["message"]


def test_vis_5_a_request_beyond_the_context_costs_no_pixel(
    http: HttpServed, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = images_of(served)
    decoded: list[object] = []
    monkeypatch.setattr(images, "decode", decoded.append)
    long = chat_of(encoded(PNG), "word " * 1_000)
    call = refused_by(served, long)
    assert call.reason == "CONTEXT_TOO_LONG"
    call = refused_by(served, chat_of(encoded(PNG), QUESTION), n=1_000)
    assert call.reason == "CONTEXT_TOO_LONG" and not decoded
    assert served.state.waiting_images.n_bytes == 0


def test_vis_5_images_that_wait_have_a_bound(http: HttpServed, served: Served) -> None:
    room = served.state.waiting_images
    room.hold(room.max_bytes - len(PNG) - 1)
    try:
        call = refused_by(served, chat_of(raw()))
        assert (call.reason, call.metadata["bound"]) == ("QUEUE_FULL", "media.waiting_bytes")
        assert (call.details.retry_seconds or 0) > 0
        # The file has room, and its pixels have none.
        assert http.chat(shown(PNG)).status == 429
        assert http.chat("Hello", max_tokens=2).status == 200
    finally:
        room.release(room.max_bytes - len(PNG) - 1)
    assert room.n_bytes == 0


def test_vis_5_only_a_message_with_images_may_be_large(http: HttpServed, served: Served) -> None:
    # What follows the end of a file is not read.
    padded = PNG + bytes(5 * MIB)
    assert answer_of(served, chat_of(encoded(padded))).usage.prompt_media_tokens == CELLS
    for chat, most in ((chat_of("a" * 5 * MIB), 4), (chat_of(encoded(bytes(17 * MIB))), 16)):
        call = refused_by(served, chat)
        assert (call.reason, call.metadata["max_message_bytes"]) == ("MESSAGE_TOO_LARGE", str(most * MIB))
    assert http.chat("a" * 5 * MIB).refusal == (413, "message_too_large", None)
    assert http.chat(shown(bytes(13 * MIB))).status == 413
    assert http.complete("a" * 5 * MIB).status == 413
    assert http.chat(shown(padded), max_tokens=2).status == 200


def test_vis_5_a_model_without_a_tower_takes_no_images() -> None:
    with serve_http() as http:
        call = refused_by(http.served, chat_of(encoded(PNG)))
        assert call.reason == "NOT_SUPPORTED_BY_MODEL" and "projector" in call.message
        reply = http.chat(shown(PNG))
        assert reply.status == 400 and "messages[0].content[0].image_url: " in reply.error["message"]


def test_vis_5_images_may_be_switched_off(tmp_path: Path) -> None:
    with serve_http("model.vision=false", model=vision_model(tmp_path)) as http:
        call = refused_by(http.served, chat_of(encoded(PNG)))
        assert (call.reason, call.metadata["feature"]) == (
            "FEATURE_DISABLED",
            "request.chat.messages[0].parts[0].image",
        )


TEMPLATES = {
    "none": (TEMPLATE.replace("<image>", ""), "0 placeholders for 1 images"),
    "two": (TEMPLATE.replace("<image>", "<image><image>"), "2 placeholders for 1 images"),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_vis_6_a_template_writes_one_placeholder_for_each_image(tmp_path: Path, case: str) -> None:
    template, words = TEMPLATES[case]
    with serve(model=vision_model(tmp_path, template=template)) as served:
        call = refused_by(served, chat_of(encoded(PNG)))
        assert call.reason == "TEMPLATE_FAILED" and words in call.message


def test_vis_6_a_template_of_parts_shows_every_message(tmp_path: Path) -> None:
    with serve(model=vision_model(tmp_path, template=TEMPLATE_OF_PARTS)) as served:
        with_image = answer_of(served, chat_of(encoded(PNG), QUESTION))
        assert with_image.usage.prompt_media_tokens == CELLS
        text = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content=QUESTION)])
        prompt = list(answer_of(served, text).started.prompt.token_ids)
        assert QUESTION in served.state.model.tokenizer.decode(prompt)
        going_on = [*text.messages, types_pb2.ChatMessage(role="assistant", content="It is")]
        chat = types_pb2.ChatPrompt(messages=going_on, continue_final_message=True)
        prompt = list(answer_of(served, chat).started.prompt.token_ids)
        assert served.state.model.tokenizer.decode(prompt).endswith(" It is")


def test_vis_6_a_placeholder_that_a_caller_spells_is_text(served: Served) -> None:
    plain = answer_of(served, chat_of(encoded(PNG), QUESTION)).started.prompt.token_ids
    spelled = answer_of(served, chat_of(encoded(PNG), QUESTION, "<image>")).started.prompt.token_ids
    image = plain[list(plain).index(max(set(plain), key=list(plain).count))]
    assert list(plain).count(image) == list(spelled).count(image) == CELLS
    alone = answer_of(served, chat_of("<image>")).usage
    assert alone.prompt_media_tokens == 0


def test_vis_8_a_caller_that_leaves_waits_for_no_decoder(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    images = images_of(served)
    decoding = threading.Event()

    async def decode(_: object) -> None:
        decoding.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(images, "decode", decode)
    call = served.inference.Generate(asked(chat_of(encoded(PNG))))
    assert decoding.wait(HANGS_AFTER)
    assert served.state.waiting_images.n_bytes > len(PNG)
    call.cancel()
    served.wait_for_calls()
    served.wait_for_rest()
    assert served.state.waiting_images.n_bytes == 0


def test_vis_7_vis_10_a_decoder_that_dies_is_no_fault_of_the_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = images_of(served)

    async def decode(plan: ImagePlan) -> None:
        raise ImagesRefused(plan.path, "the process that decodes images died twice")

    def value_of(name: str) -> float:
        return served.state.telemetry.metrics.registry.get_sample_value(name) or 0

    names = ("imp_media_encoded_total", "imp_media_decode_failures_total")
    before = [value_of(name) for name in names]
    monkeypatch.setattr(images, "decode", decode)
    call = refused_by(served, chat_of(encoded(PNG)))
    assert call.reason == "NO_MEMORY" and (call.details.retry_seconds or 0) > 0
    assert [value_of(name) for name in names] == [before[0], before[1] + 1]
    monkeypatch.undo()
    # Five tiles that the store does not hold yet.
    assert answer_of(served, chat_of(raw(seed=77))).output.ids
    assert [value_of(name) for name in names] == [before[0] + 5, before[1] + 1]
