"""The library and its client take a picture in every form, with equal tokens and log probabilities."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

import imp_service
from imp_service import ChatMessage, ChatPrompt, Client, FieldsInvalid, Image, LanguageModel, PromptParts, StateError
from support.models.tiny_vision_models import write_vision_files
from support.servers.served import Served
from support.servers.vision_served import CELLS, QUESTION, file_of, picture

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True, "logprobs": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    path, _ = write_vision_files(tmp_path_factory.mktemp("library"))
    with imp_service.load(path, "device.threads=1", "kv.bytes=2MiB") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    with imp_service.connect(served.address) as it:
        yield it


def forms(folder: Path) -> list[Image]:
    path = folder / "picture.png"
    path.write_bytes(file_of())
    pixels = picture()
    shown = PIL.Image.fromarray(pixels)
    return [Image(file_of()), Image.open(path), Image(str(path)), Image(pixels), Image(shown)]


def test_vis_6_every_form_of_a_picture_has_the_same_answer(
    model: LanguageModel, client: Client, tmp_path: Path
) -> None:
    found = []
    for image in forms(tmp_path):
        messages = [{"role": "user", "content": [image, QUESTION]}]
        result = model.chat(messages, **GREEDY).result()
        assert result.usage.prompt_media_tokens == CELLS
        found.append((result.token_ids, result.logprobs))
        remote = client.chat(messages, **GREEDY).result()
        assert remote.usage.prompt_media_tokens == CELLS
        found.append((remote.token_ids, remote.logprobs))
    assert all(each == found[0] for each in found)
    other = model.chat([{"role": "user", "content": [Image(picture(1)), QUESTION]}], **GREEDY).result()
    assert other.logprobs != found[0][1]


def test_vis_6_a_list_with_a_picture_is_one_prompt(model: LanguageModel, client: Client) -> None:
    parts = ("A photo of ", Image(file_of()), ". Title:")
    one, whole = (model.generate(prompt, **GREEDY).result() for prompt in (list(parts), PromptParts(parts)))
    assert one.token_ids == whole.token_ids == client.generate(PromptParts(parts), **GREEDY).result().token_ids
    assert one.usage.prompt_media_tokens == CELLS
    with model.open(temperature=0) as session:
        first = session.prefill(PromptParts(parts))
        assert first.token_id == one.token_ids[0]
    chat = ChatPrompt((ChatMessage("user", (Image(file_of()), QUESTION)),))
    assert asyncio.run(model.chat_async(chat, **GREEDY).result()).usage.prompt_media_tokens == CELLS


WRONG: dict[str, tuple[Any, str]] = {
    "no image": (b"no", "is no PNG, JPEG, WebP or GIF"),
    "a bound": (Image(file_of(), max_tokens=7), "fixed number of tokens"),
    "too few bytes": (Image.raw(2, 2, b"123"), "2 x 2 pixels have 12"),
}


@pytest.mark.parametrize("case", WRONG)
def test_vis_5_a_wrong_picture_is_named(model: LanguageModel, client: Client, case: str) -> None:
    given, words = WRONG[case]
    image = given if isinstance(given, Image) else Image(given)
    for asked in (model, client):
        with pytest.raises(FieldsInvalid, match=words) as caught:
            asked.chat([{"role": "user", "content": [QUESTION, image]}], **GREEDY).result()
        assert (caught.value.field or "").startswith("chat.messages[0].parts[1].image")


def test_vis_6_what_is_no_image_is_refused_where_it_is_made() -> None:
    for source in (7, picture()[..., 0], picture().astype("float32"), [1, 2]):
        with pytest.raises(FieldsInvalid, match="image: "):
            Image(source)
    gray = PIL.Image.fromarray(picture()[..., 0])
    assert Image(gray).size == gray.size and len(Image(gray).data) == 3 * gray.width * gray.height
    assert Image(io.BytesIO(file_of()).getvalue()) == Image(file_of())
    assert "data" not in repr(Image(file_of()))


def test_vis_5_a_model_of_text_takes_no_picture() -> None:
    with (
        imp_service.load(None, "device.threads=1", "kv.bytes=1MiB") as text,
        pytest.raises(StateError, match="reads no images"),
    ):
        text.chat([{"role": "user", "content": [Image(file_of()), QUESTION]}])
