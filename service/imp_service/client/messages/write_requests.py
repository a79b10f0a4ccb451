"""Requests of the Python API as messages of imp.v1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.arguments import text_of, token_ids_of
from ...api.chat_prompt import ChatMessage, ChatPrompt, InfillPrompt, PromptParts
from ...api.constraint_spec import Constraint, ConstraintKind, ConstraintSpec
from ...api.decisions import DecisionRequest
from ...api.errors import invalid
from ...api.image import Image
from ...api.options import GenerationRequest, Prompt
from ...api.resume import Resume
from ...api.vectors import EmbedRequest, RerankRequest
from ...pb import inference_pb2, tokenizer_pb2, types_pb2
from .fields import MessageWriter

Metadata = tuple[tuple[str, str], ...]
# Fields that are written by themselves, or are metadata of the call.
NOT_IN_MESSAGES = ("prompt", "constraint", "priority", "tenant", "resume")


def write_generation(
    request: GenerationRequest, model: str = "", session_id: str = ""
) -> inference_pb2.GenerateRequest:
    """A generation from its prompt, or of a session. Raises FIELD_INVALID for values that no message can hold."""
    message, writer = inference_pb2.GenerateRequest(), MessageWriter()
    writer.put(message, "model", model, "model")
    if session_id:
        message.session_id = session_id
    else:
        write_prompt(writer, message, request.prompt)
    writer.fill(message, request, "", leaves_out=NOT_IN_MESSAGES)
    if request.constraint is not None:
        write_constraint(writer, message.constraint, request.constraint)
    if request.resume is not None:
        _write_resume(writer, message.resume, request.resume)
    writer.finish()
    return message


def _write_resume(writer: MessageWriter, message: inference_pb2.Resume, resume: Resume) -> None:
    writer.put(message, "origin", resume.origin, "resume.origin")
    for i, each in enumerate(resume.sequences):
        writer.fill(message.sequences.add(), each, f"resume.sequences[{i}]", leaves_out=("chunks",))


def write_decision(request: DecisionRequest, model: str = "") -> inference_pb2.DecideRequest:
    """A decision. Raises FIELD_INVALID for values that no message can hold."""
    message, writer = inference_pb2.DecideRequest(), MessageWriter()
    writer.put(message, "model", model, "model")
    write_prompt(writer, message, request.prompt)
    writer.fill(message, request, "", leaves_out=NOT_IN_MESSAGES)
    writer.finish()
    return message


def write_prompt(writer: MessageWriter, message: Any, prompt: Prompt) -> None:
    """The prompt of a request."""
    if isinstance(prompt, str):
        writer.put(message, "text", prompt, "text")
    elif isinstance(prompt, ChatPrompt):
        message.chat.SetInParent()
        writer.fill(message.chat, prompt, "chat", leaves_out=("messages",))
        for i, each in enumerate(prompt.messages):
            added = message.chat.messages.add()
            writer.fill(added, each, f"chat.messages[{i}]", leaves_out=("content",))
            _write_content(writer, added, each, f"chat.messages[{i}]")
    elif isinstance(prompt, PromptParts):
        message.parts.SetInParent()
        for i, part in enumerate(prompt.parts):
            _write_part(writer, message.parts.parts.add(), part, f"parts.parts[{i}]")
    elif isinstance(prompt, InfillPrompt):
        message.infill.SetInParent()
        writer.fill(message.infill, prompt, "infill", leaves_out=("files",))
        for i, file in enumerate(prompt.files):
            writer.fill(message.infill.files.add(), file, f"infill.files[{i}]")
    elif isinstance(prompt, bytes | bytearray) or not hasattr(prompt, "__iter__"):
        raise invalid("prompt", f"{type(prompt).__name__}, expected text, token ids or a ChatPrompt")
    else:
        message.token_ids.SetInParent()
        put_tokens(writer, message.token_ids, prompt)


def _write_content(writer: MessageWriter, message: types_pb2.ChatMessage, chat: ChatMessage, path: str) -> None:
    if chat.content is None:
        message.null_content = True
    elif isinstance(chat.content, tuple):
        for i, part in enumerate(chat.content):
            _write_part(writer, message.parts.add(), part, f"{path}.parts[{i}]")
    else:
        writer.put(message, "content", chat.content, f"{path}.content")


def _write_part(writer: MessageWriter, message: Any, part: str | Sequence[int] | Image, path: str) -> None:
    """A part of a message's content or of a prompt."""
    if isinstance(part, str):
        writer.put(message, "text", part, f"{path}.text")
    elif isinstance(part, Image):
        message.image.SetInParent()
        if part.size is None:
            message.image.encoded = part.data
        else:
            writer.put(message.image.raw, "width", part.size[0], f"{path}.image.raw.width")
            writer.put(message.image.raw, "height", part.size[1], f"{path}.image.raw.height")
            message.image.raw.rgb = part.data
        if part.max_tokens is not None:
            writer.put(message.image, "max_tokens", part.max_tokens, f"{path}.image.max_tokens")
    else:
        message.token_ids.SetInParent()
        put_tokens(writer, message.token_ids, part)


def put_tokens(writer: MessageWriter, target: types_pb2.TokenIds, tokens: Sequence[int]) -> None:
    """Token ids."""
    writer.extend(target.ids, types_pb2.TokenIds.DESCRIPTOR.fields_by_name["ids"], tokens, "token_ids")


def write_constraint(writer: MessageWriter, message: types_pb2.Constraint, constraint: Constraint) -> None:
    """A constraint."""
    if not isinstance(constraint, ConstraintSpec):
        raise invalid("constraint", f"{type(constraint).__name__}, expected a ConstraintSpec")
    kind = constraint.kind.value
    match constraint.kind:
        case ConstraintKind.CHOICES:
            message.choices.SetInParent()
            writer.put(message.choices, "values", constraint.choices, "constraint.choices")
        case ConstraintKind.JSON_OBJECT:
            message.json_object.SetInParent()
        case _:
            writer.put(message, kind, constraint.source, f"constraint.{kind}")
    message.unbounded_whitespace = constraint.unbounded_whitespace


def write_embed(request: EmbedRequest, model: str = "") -> inference_pb2.EmbedRequest:
    """Texts, or lists of ids. Raises FIELD_INVALID for values that no message can hold."""
    message, writer = inference_pb2.EmbedRequest(), MessageWriter()
    writer.put(message, "model", model, "model")
    lists = [each for each in request.texts if not isinstance(each, str)]
    if len(lists) < len(request.texts):
        writer.put(message, "texts", request.texts, "texts")
    else:
        for each in lists:
            put_tokens(writer, message.token_ids.add(), token_ids_of(each))
    writer.fill(message, request.options, "")
    writer.finish()
    return message


def write_rerank(request: RerankRequest, model: str = "") -> inference_pb2.RerankRequest:
    """A query and its documents. Raises FIELD_INVALID for values that no message can hold."""
    message, writer = inference_pb2.RerankRequest(), MessageWriter()
    writer.put(message, "model", model, "model")
    writer.put(message, "query", request.query, "query")
    writer.put(message, "documents", request.documents, "documents")
    writer.fill(message, request.options, "")
    writer.finish()
    return message


def write_tokenize(text: str, *, add_special: bool, parse_special: bool) -> tokenizer_pb2.TokenizeRequest:
    """One text to tokenize."""
    message, writer = tokenizer_pb2.TokenizeRequest(), MessageWriter()
    writer.put(message, "texts", [text_of(text)], "texts")
    writer.put(message, "add_special_tokens", add_special, "add_special_tokens")
    writer.put(message, "parse_special_tokens", parse_special, "parse_special_tokens")
    writer.finish()
    return message


def write_detokenize(token_ids: Sequence[int], *, special_tokens: bool) -> tokenizer_pb2.DetokenizeRequest:
    """One list of ids to detokenize."""
    message, writer = tokenizer_pb2.DetokenizeRequest(), MessageWriter()
    put_tokens(writer, message.token_ids.add(), token_ids_of(token_ids))
    writer.put(message, "special_tokens", special_tokens, "special_tokens")
    writer.finish()
    return message


def caller_metadata(tenant: str, priority: int) -> Metadata:
    """The tenant and the priority of a call. Raises FIELD_INVALID for values that metadata cannot hold."""
    found: Metadata = ()
    if tenant:
        if not (isinstance(tenant, str) and tenant.isascii() and tenant.isprintable()):
            raise invalid("tenant", f"{tenant!r}, expected printable ASCII")
        found += (("imp-tenant", tenant),)
    if priority:
        if not isinstance(priority, int):
            raise invalid("priority", f"{priority!r}, expected a whole number")
        found += (("imp-priority", str(int(priority))),)
    return found
