"""Requests of imp.v1 as the Python API has them, whether they are valid or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from google.protobuf.message import Message

from imp_service.api.chat_prompt import ContentParts, InfillFile, InfillPrompt, PromptParts
from imp_service.api.decisions import MAX_LABELS, DecisionRequest, IntegerRange
from imp_service.api.image import Image
from imp_service.api.options import CacheOptions, GenerationRequest, Prompt, SamplingOptions, StepOptions
from imp_service.api.resume import SessionResume
from imp_service.api.vectors import EmbedOptions, EmbedRequest, RerankOptions, RerankRequest, TextOrIds
from imp_service.config.settings import Settings
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.imp_v1.requests.message_rules import under
from imp_service.rpc.imp_v1.requests.read_options import read_options, read_origin
from imp_service.text import ChatMessage, ChatPrompt
from imp_service.text.templates.chat_prompt import MAX_MESSAGES


def read_generation(request: inference_pb2.GenerateRequest, settings: Settings) -> GenerationRequest:
    """A generation. The prompt is empty if it continues a session. The default time limit is the server's."""
    asked = read_options(GenerationRequest, request, prompt=read_prompt(request, "prompt"))
    if asked.stop.time_limit is None:
        asked = replace(asked, stop=replace(asked.stop, time_limit=settings.limits.request_time.total_seconds()))
    return asked


def read_decision(request: inference_pb2.DecideRequest) -> DecisionRequest:
    """A decision."""
    return DecisionRequest(
        read_prompt(request, "prompt"),
        labels=tuple(request.labels[: MAX_LABELS + 1]),
        range=read_options(IntegerRange, request.range) if request.HasField("range") else None,
        cache=read_options(CacheOptions, request.cache),
    )


Step = inference_pb2.PrefillRequest | inference_pb2.SessionStep


@dataclass(frozen=True, slots=True)
class AskedStep:
    """What a request asks of a step of one session."""

    options: StepOptions
    sampling: SamplingOptions | None  # None: that of the session
    resume: SessionResume | None = None  # the session goes on here


def read_steps(request: Any, most: int) -> Mapping[str, AskedStep]:
    """Path in the request -> the step of a session there. More than `most` are not read."""
    return {path: _read_step(step) for path, step in _steps_in(request, most)}


def _read_step(step: Step) -> AskedStep:
    sampling = read_options(SamplingOptions, step.sampling) if step.HasField("sampling") else None
    resume = None
    if isinstance(step, inference_pb2.PrefillRequest) and step.HasField("resume"):
        resume = read_options(SessionResume, step.resume, origin=read_origin(step.resume.origin))
    return AskedStep(read_options(StepOptions, step.step), sampling, resume)


def _steps_in(request: Any, most: int, path: str = "") -> Iterator[tuple[str, Step]]:
    match request:
        case inference_pb2.PrefillRequest():
            yield path, request
        case inference_pb2.DecodeStepRequest() if len(request.steps) <= most:
            for i, step in enumerate(request.steps):
                yield under(path, f"steps[{i}]"), step
        case inference_pb2.DecodeStreamRequest():
            kind = request.WhichOneof("request")
            if kind is not None:
                yield from _steps_in(getattr(request, kind), most, kind)


def read_prompt(request: Any, oneof: str) -> Prompt:
    """The prompt of a request. Token ids are not copied, since there may be many."""
    match request.WhichOneof(oneof):
        case "token_ids":
            ids: Sequence[int] = request.token_ids.ids
            return ids
        case "chat":
            return read_chat(request.chat)
        case "text":
            return str(request.text)
        case "parts":
            return PromptParts(tuple(map(read_part, request.parts.parts)))
        case "infill":
            return read_infill(request.infill)
    return ""


def read_infill(infill: types_pb2.InfillPrompt) -> InfillPrompt:
    """A text with a gap."""
    files = tuple(InfillFile(each.name, each.text) for each in infill.files)
    return InfillPrompt(infill.prefix, infill.suffix, infill.middle, files)


def read_part(part: types_pb2.PromptPart) -> str | Sequence[int] | Image:
    """A part of a prompt. Token ids are not copied."""
    match part.WhichOneof("kind"):
        case "image":
            return _image(part.image)
        case "token_ids":
            return part.token_ids.ids
    return part.text


def _image(image: types_pb2.Image) -> Image:
    max_tokens = image.max_tokens if image.HasField("max_tokens") else None
    if image.WhichOneof("source") == "raw":
        return Image.raw(image.raw.width, image.raw.height, image.raw.rgb, max_tokens=max_tokens)
    return Image(image.encoded, max_tokens=max_tokens)


def _content(message: types_pb2.ChatMessage) -> str | ContentParts | None:
    if message.null_content:
        return None
    if message.parts:
        return tuple(_image(part.image) if part.HasField("image") else part.text for part in message.parts)
    return message.content


def _message(message: types_pb2.ChatMessage) -> ChatMessage:
    return ChatMessage(
        message.role,
        _content(message),
        message.name,
        message.tool_call_id,
        message.tool_calls_json,
        message.reasoning_content,
    )


def read_chat(chat: types_pb2.ChatPrompt) -> ChatPrompt:
    """A conversation. More messages than it may have are only counted."""
    is_long = len(chat.messages) > MAX_MESSAGES
    return ChatPrompt(
        messages=chat.messages if is_long else tuple(map(_message, chat.messages)),  # type: ignore[arg-type]
        tools_json=chat.tools_json,
        add_generation_prompt=chat.add_generation_prompt if chat.HasField("add_generation_prompt") else None,
        continue_final_message=chat.continue_final_message if chat.HasField("continue_final_message") else None,
        template_kwargs_json=chat.template_kwargs_json,
        documents_json=chat.documents_json,
    )


def read_embed(request: inference_pb2.EmbedRequest) -> EmbedRequest:
    """Inputs to embed. Token ids are not copied."""
    inputs: Sequence[TextOrIds] = request.texts or [item.ids for item in request.token_ids]
    return EmbedRequest(inputs, read_options(EmbedOptions, request))


def read_rerank(request: inference_pb2.RerankRequest) -> RerankRequest:
    """Documents to rank."""
    return RerankRequest(request.query, request.documents, read_options(RerankOptions, request))


def input_path(request: inference_pb2.EmbedRequest, path: str) -> str:
    """The path in a request of what `embed_findings` calls `texts` or `texts[3]`."""
    if not request.token_ids or not path.startswith("texts"):
        return path
    index, bracket, rest = path.removeprefix("texts").partition("]")
    return f"token_ids{index}{bracket}{'.ids' if bracket else ''}{rest}"


DIGEST_BYTES = 16


def request_digest(request: Message) -> bytes:
    """A digest that two messages share only if they are equal and of one type."""
    content = request.SerializeToString(deterministic=True)
    return blake2b(content, digest_size=DIGEST_BYTES, person=request.DESCRIPTOR.name.encode()[:16]).digest()
