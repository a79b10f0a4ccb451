"""TokenizerService: text to tokens and back, conversations to prompts, and the tokenizer itself."""

from __future__ import annotations

import asyncio
import hashlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from imp_service.generation import ModelRuntime
from imp_service.generation.validate import invalid
from imp_service.pb import tokenizer_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.replies.encoded import Encoded, Pieces
from imp_service.rpc.requests.check_request import checked
from imp_service.rpc.requests.read_requests import ID_BYTES, read_chat, reading_bytes
from imp_service.serving.host import Host
from imp_service.serving.served_model import Terms
from imp_service.text import FieldInvalid, TextSpan, Tokenizer

# Of an archive, in one message.
PIECE_BYTES = 256 * 1024
# Ids that one call of a library handles.
SLICE = 4096
# A tag and a length.
FRAME_BYTES = 6
RESULTS = pb.TokenizeResponse.DESCRIPTOR.fields_by_name["results"].number
TEXTS, RAW = (pb.DetokenizeResponse.DESCRIPTOR.fields_by_name[name].number for name in ("texts", "raw"))
PROMPT = pb.ApplyChatTemplateResponse.DESCRIPTOR.fields_by_name["text"].number


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

    async def Tokenize(self, request: pb.TokenizeRequest, call: Call) -> Encoded:  # noqa: N802
        terms = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = sum(len(text.encode()) for text in request.texts)
        return await self._host.workers.run(lambda: tokenize(request, tokenizer, terms), n_bytes)

    async def Detokenize(self, request: pb.DetokenizeRequest, call: Call) -> Encoded:  # noqa: N802
        terms = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = ID_BYTES * sum(len(item.ids) for item in request.token_ids)
        return await self._host.workers.run(lambda: detokenize(request, tokenizer, terms), n_bytes)

    async def ApplyChatTemplate(self, request: pb.ApplyChatTemplateRequest, call: Call) -> Encoded:  # noqa: N802
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


def tokenize(request: pb.TokenizeRequest, tokenizer: Tokenizer, terms: Terms) -> Encoded:
    """Each text by itself, in order; no further than the reply may be large."""
    pieces, room = Pieces(), Room("offsets" if request.offsets else "texts", terms)
    for i, text in enumerate(request.texts):
        try:
            pieces.add_field(RESULTS, room.taken(tokenized(text, request, tokenizer)))
        except FieldInvalid as error:
            raise FieldInvalid(f"texts[{i}]", error.message) from error
    return pieces.joined()


def tokenized(text: str, request: pb.TokenizeRequest, tokenizer: Tokenizer) -> Iterator[bytes]:
    """The pieces of one text's result."""
    adds = request.add_special_tokens if request.HasField("add_special_tokens") else True
    parses, n_tokens = request.parse_special_tokens, 0
    if request.offsets:
        for part in tokenizer.offset_parts(text, add_special_tokens=adds, parse_special_tokens=parses):
            n_tokens += len(part.ids)
            for ids, starts in zip(sliced(part.ids), sliced(part.start_bytes), strict=True):
                yield pb.TokenizedText(token_ids=ids, start_bytes=starts).SerializeToString()
    else:
        for part_ids in tokenizer.encode_parts([TextSpan(text, parses)], add_special_tokens=adds):
            n_tokens += len(part_ids)
            for ids in () if request.count_only else sliced(part_ids):
                yield pb.TokenizedText(token_ids=ids).SerializeToString()
    yield pb.TokenizedText(count=n_tokens).SerializeToString()


def detokenize(request: pb.DetokenizeRequest, tokenizer: Tokenizer, terms: Terms) -> Encoded:
    """Each list by itself, in order: the text, and the exact bytes."""
    lengths = tokenizer.table.token_bytes
    room = Room("token_ids", terms)
    # Before any is joined: a few ids may stand for long texts.
    for item in request.token_ids:
        for ids in sliced(item.ids):
            room.take(2 * sum(len(lengths[token_id]) for token_id in ids))
    pieces, texts = Pieces(), Pieces()
    room = Room("token_ids", terms)
    for item in request.token_ids:
        raw = list(room.taken(tokenizer.decode_parts(sliced(item.ids), special_tokens=request.special_tokens)))
        texts.add_field(TEXTS, room.taken(as_utf8(raw)))
        pieces.add_field(RAW, raw)
    return Pieces.of(texts, pieces).joined()


def as_utf8(raw: Iterable[bytes]) -> Iterator[bytes]:
    """The same as text, each maximal ill-formed part as one U+FFFD."""
    decoder = getincrementaldecoder("utf-8")("replace")
    for piece in raw:
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def apply_chat_template(request: pb.ApplyChatTemplateRequest, model: ModelRuntime, terms: Terms) -> Encoded:
    """The prompt that Generate would evaluate."""
    rendered = model.text.render(read_chat(request.chat))
    pieces, room = Pieces(), Room("chat", terms)
    pieces.add_field(PROMPT, room.taken([rendered.text.encode()]))
    for part in model.tokenizer.encode_parts(rendered.spans, add_special_tokens=False):
        for ids in sliced(part):
            for piece in room.taken([pb.ApplyChatTemplateResponse(token_ids=ids).SerializeToString()]):
                pieces.add(piece)
    return pieces.joined()


class Room:
    """Counts the bytes of a reply, and refuses more than a message may have."""

    def __init__(self, path: str, terms: Terms) -> None:
        """`path` is the field that the error names."""
        self._path = path
        self._most = terms.settings.limits.max_message_bytes
        self._n_bytes = 0

    def take(self, n_bytes: int) -> None:
        """Raises FIELD_INVALID where the reply could not be sent."""
        self._n_bytes += n_bytes
        if self._n_bytes > self._most:
            words = f"the reply has more than limits.max_message_bytes = {self._most} bytes"
            raise invalid(self._path, words)

    def taken(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, as long as there is room; with what frames them."""
        self.take(FRAME_BYTES)
        for piece in pieces:
            self.take(len(piece))
            yield piece


def sliced(items: Sequence[int]) -> Iterator[Sequence[int]]:
    """A sequence in slices: one call over all of it would keep every other thread of Python waiting."""
    for first in range(0, len(items), SLICE):
        yield items[first : first + SLICE]
