"""TokenizerService: text to tokens and back, conversations to prompts, and the tokenizer itself."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from imp_service.generation import LanguageModel
from imp_service.generation.validate import invalid
from imp_service.pb import tokenizer_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.requests.check_request import checked
from imp_service.rpc.requests.read_prompts import ID_BYTES, read_chat, reading_bytes
from imp_service.rpc.requests.terms import Terms
from imp_service.serving.host import Host
from imp_service.text import FieldInvalid, Tokenizer

# Of an archive, in one message.
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Archive:
    """The tokenizer as files, and their digest."""

    content: bytes
    sha256: str


class TokenizerServicer:
    """On the event loop's thread; the work itself is the workers'."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._archive: asyncio.Task[Archive] | None = None

    async def Tokenize(self, request: pb.TokenizeRequest, call: Call) -> pb.TokenizeResponse:  # noqa: N802
        terms = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = sum(len(text.encode()) for text in request.texts)
        return await self._host.workers.run(lambda: tokenize(request, tokenizer, terms), n_bytes)

    async def Detokenize(self, request: pb.DetokenizeRequest, call: Call) -> pb.DetokenizeResponse:  # noqa: N802
        terms = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = ID_BYTES * sum(len(item.ids) for item in request.token_ids)
        return await self._host.workers.run(lambda: detokenize(request, tokenizer, terms), n_bytes)

    async def ApplyChatTemplate(  # noqa: N802
        self, request: pb.ApplyChatTemplateRequest, call: Call
    ) -> pb.ApplyChatTemplateResponse:
        terms = await checked(request, call.n_request_bytes, self._host)
        model = self._host.model
        n_bytes = reading_bytes(read_chat(request.chat))
        return await self._host.workers.run(lambda: apply_chat_template(request, model, terms), n_bytes)

    async def GetTokenizer(self, request: pb.GetTokenizerRequest, call: Call) -> None:  # noqa: N802
        archive = await self._made_archive()
        content = archive.content
        n_piece = min(PIECE_BYTES, self._host.settings.limits.max_message_bytes // 2)
        for start in range(0, len(content), n_piece):
            is_last = start + n_piece >= len(content)
            piece = content[start : start + n_piece]
            await call.write(pb.GetTokenizerResponse(data=piece, sha256=archive.sha256 if is_last else ""))

    async def _made_archive(self) -> Archive:
        """Made once, whoever asks first; a failure is not kept."""
        if self._archive is None or (self._archive.done() and self._archive.exception() is not None):
            self._archive = asyncio.create_task(self._make_archive())
        return await asyncio.shield(self._archive)

    async def _make_archive(self) -> Archive:
        model = self._host.model

        def make() -> Archive:
            content = model.tokenizer.archive(model.text.template_source)
            return Archive(content, hashlib.sha256(content).hexdigest())

        return await self._host.workers.run(make, ID_BYTES * model.tokenizer.vocab_size + PIECE_BYTES)


def tokenize(request: pb.TokenizeRequest, tokenizer: Tokenizer, terms: Terms) -> pb.TokenizeResponse:
    """Each text by itself, in order."""
    response = pb.TokenizeResponse()
    adds = request.add_special_tokens if request.HasField("add_special_tokens") else True
    for i, text in enumerate(request.texts):
        result = response.results.add()
        try:
            if request.offsets:
                encoding = tokenizer.encode_with_offsets(
                    text, add_special_tokens=adds, parse_special_tokens=request.parse_special_tokens
                )
                ids = encoding.ids
                result.start_bytes.extend(encoding.start_bytes)
            else:
                ids = tokenizer.encode(text, add_special_tokens=adds, parse_special_tokens=request.parse_special_tokens)
        except FieldInvalid as error:
            raise FieldInvalid(f"texts[{i}]", error.message) from error
        result.count = len(ids)
        if not request.count_only:
            result.token_ids.extend(ids)
    _check_size(response, "offsets" if request.offsets else "texts", terms)
    return response


def detokenize(request: pb.DetokenizeRequest, tokenizer: Tokenizer, terms: Terms) -> pb.DetokenizeResponse:
    """Each list by itself, in order: the text, and the exact bytes."""
    pieces = tokenizer.table.token_bytes
    # Before any is joined: a few ids may stand for long texts.
    n_bytes = 2 * sum(len(pieces[token_id]) for item in request.token_ids for token_id in item.ids)
    _refuse_beyond(n_bytes, "token_ids", terms)
    response = pb.DetokenizeResponse()
    for item in request.token_ids:
        raw = tokenizer.decode_bytes(item.ids, special_tokens=request.special_tokens)
        response.raw.append(raw)
        response.texts.append(raw.decode("utf-8", "replace"))
    _check_size(response, "token_ids", terms)
    return response


def apply_chat_template(
    request: pb.ApplyChatTemplateRequest, model: LanguageModel, terms: Terms
) -> pb.ApplyChatTemplateResponse:
    """The prompt that Generate would evaluate."""
    rendered = model.text.template.render(read_chat(request.chat))
    ids = model.tokenizer.encode_spans(rendered.spans, add_special_tokens=False)
    response = pb.ApplyChatTemplateResponse(text=rendered.text, token_ids=ids)
    _check_size(response, "chat", terms)
    return response


def _check_size(response: Any, path: str, terms: Terms) -> None:
    _refuse_beyond(response.ByteSize(), path, terms)


def _refuse_beyond(n_bytes: int, path: str, terms: Terms) -> None:
    most = terms.settings.limits.max_message_bytes
    if n_bytes > most:
        raise invalid(f"{path}: the reply has {n_bytes} bytes, at most limits.max_message_bytes = {most} can be sent")
