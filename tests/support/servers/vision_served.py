"""Servers of a tiny model that reads images, and the same picture in every form that a request can have."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from imp_service.media import Images
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import FailedCall, failed
from support.calls.generations import Result, in_one
from support.media.image_files import MODES, Pixels, pixels_of
from support.models.tiny_vision_models import write_vision_files
from support.servers.served import Served
from support.servers.served_models import ServedModel, from_file

SIZE = (112, 84)
QUESTION = "What is this?"
# Of an image of SIZE: four tiles, and an overview.
CELLS = 80


def vision_model(folder: Path, **changes: Any) -> ServedModel:
    """Writes a model and its projector into a folder."""
    return from_file(write_vision_files(folder, **changes)[0])


def picture(seed: int = 0) -> Pixels:
    """Returns the pixels of a picture: height, width, red, green and blue."""
    return pixels_of(*SIZE, seed=seed)[..., :3].copy()


def file_of(seed: int = 0) -> bytes:
    """Returns the same picture as a file."""
    return MODES["rgb"](pixels_of(*SIZE, seed=seed))


def images_of(served: Served) -> Images:
    """Returns what reads the images of a server's model."""
    images = served.state.model.images
    if images is None:
        raise AssertionError("the model reads no images")
    return images


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def encoded(data: bytes, **fields: Any) -> types_pb2.Image:
    return types_pb2.Image(encoded=data, **fields)


def raw(seed: int = 0) -> types_pb2.Image:
    pixels = picture(seed)
    height, width, _ = pixels.shape
    return types_pb2.Image(raw=types_pb2.RawImage(width=width, height=height, rgb=pixels.tobytes()))


def chat_of(*content: str | types_pb2.Image, role: str = "user", **fields: Any) -> types_pb2.ChatPrompt:
    """Returns a conversation of one message."""
    parts = [
        types_pb2.ContentPart(text=each) if isinstance(each, str) else types_pb2.ContentPart(image=each)
        for each in content
    ]
    return types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role=role, parts=parts)], **fields)


def asked(chat: types_pb2.ChatPrompt | types_pb2.PromptParts, n: int = 8) -> pb.GenerateRequest:
    """Returns a greedy request for log probabilities and the tokens of the prompt."""
    prompt = {"chat": chat} if isinstance(chat, types_pb2.ChatPrompt) else {"parts": chat}
    return pb.GenerateRequest(
        **prompt,  # type: ignore[arg-type]
        sampling=types_pb2.SamplingOptions(temperature=0),
        stop=types_pb2.StopOptions(max_tokens=n, ignore_eos=True),
        output=types_pb2.OutputOptions(prompt_token_ids=True, logprobs=True),
    )


def answer_of(served: Served, prompt: types_pb2.ChatPrompt | types_pb2.PromptParts, n: int = 8) -> Result:
    """Returns what GenerateUnary answers."""
    return in_one(served, asked(prompt, n))


def refused_by(served: Served, prompt: types_pb2.ChatPrompt | types_pb2.PromptParts, n: int = 8) -> FailedCall:
    """Returns how GenerateUnary refuses a prompt."""
    request = pb.GenerateUnaryRequest(request=asked(prompt, n))
    return failed(lambda: served.inference.GenerateUnary(request))


def content_of(url: Any, text: str = QUESTION) -> list[dict[str, Any]]:
    """Returns the parts of a message of the chat API."""
    return [{"type": "image_url", "image_url": url}, {"type": "text", "text": text}]


def shown(data: bytes) -> list[dict[str, Any]]:
    """Returns the messages of the chat API that show an image and ask what it is."""
    return said(content_of(data_url(data)))


def said(content: Sequence[dict[str, Any]] | str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]
