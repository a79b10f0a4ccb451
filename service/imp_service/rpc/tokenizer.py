"""TokenizerService: text to tokens and back, conversations to prompts, and the tokenizer itself."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence

from imp_service.api.errors import invalid
from imp_service.generation import ModelRuntime
from imp_service.pb import tokenizer_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.replies.encoded import Encoded, Pieces
from imp_service.rpc.requests.check_request import checked
from imp_service.rpc.requests.read_requests import read_chat
from imp_service.rpc.tokenizer_archive import TokenizerArchive
from imp_service.serving.host import Host
from imp_service.serving.prompt_cost import ID_BYTES, reading_bytes
from imp_service.serving.served_model import ServedModel
from imp_service.text import FieldInvalid, TextSpan, Tokenizer

# Ids in one call of a library, which holds Python's lock.
SLICE = 4096
# A tag and a length.
FRAME_BYTES = 6
RESULTS = pb.TokenizeResponse.DESCRIPTOR.fields_by_name["results"].number
TEXTS, RAW = (pb.DetokenizeResponse.DESCRIPTOR.fields_by_name[name].number for name in ("texts", "raw"))
PROMPT = pb.ApplyChatTemplateResponse.DESCRIPTOR.fields_by_name["text"].number


class TokenizerServicer:
    """On the event loop's thread. Workers do the work."""

    def __init__(self, host: Host, archive: TokenizerArchive) -> None:
        self._host = host
        self._archive = archive

    async def Tokenize(self, request: pb.TokenizeRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = sum(len(text.encode()) for text in request.texts)
        return await self._host.workers.run(lambda: tokenize(request, tokenizer, served), n_bytes)

    async def Detokenize(self, request: pb.DetokenizeRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._host)
        tokenizer = self._host.model.tokenizer
        n_bytes = ID_BYTES * sum(len(item.ids) for item in request.token_ids)
        return await self._host.workers.run(lambda: detokenize(request, tokenizer, served), n_bytes)

    async def ApplyChatTemplate(self, request: pb.ApplyChatTemplateRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._host)
        model = self._host.model
        n_bytes = reading_bytes(read_chat(request.chat), renders_quickly=model.text.renders_quickly)
        return await self._host.workers.run(lambda: apply_chat_template(request, model, served), n_bytes)

    async def GetTokenizer(self, request: pb.GetTokenizerRequest, call: GrpcCall) -> None:  # noqa: N802
        async for piece in self._archive.pieces():
            await call.write(pb.GetTokenizerResponse(data=piece.content, sha256=piece.sha256))


def tokenize(request: pb.TokenizeRequest, tokenizer: Tokenizer, served: ServedModel) -> Encoded:
    """Tokenizes each text, until the reply is too large."""
    pieces, size = Pieces(), ReplySize("offsets" if request.offsets else "texts", served)
    for i, text in enumerate(request.texts):
        try:
            pieces.add_field(RESULTS, size.counted(tokenized(text, request, tokenizer)))
        except FieldInvalid as error:
            raise FieldInvalid(f"texts[{i}]", error.message) from error
    return pieces.joined()


def tokenized(text: str, request: pb.TokenizeRequest, tokenizer: Tokenizer) -> Iterator[bytes]:
    """The serialized result of one text, in pieces."""
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


def detokenize(request: pb.DetokenizeRequest, tokenizer: Tokenizer, served: ServedModel) -> Encoded:
    """Detokenizes each list of ids to text and to the exact bytes."""
    lengths = tokenizer.table.token_bytes
    size = ReplySize("token_ids", served)
    # Checked first: a few ids may have long texts.
    for item in request.token_ids:
        for ids in sliced(item.ids):
            size.add(2 * sum(len(lengths[token_id]) for token_id in ids))
    pieces, texts = Pieces(), Pieces()
    size = ReplySize("token_ids", served)
    for item in request.token_ids:
        raw = list(size.counted(tokenizer.decode_parts(sliced(item.ids), special_tokens=request.special_tokens)))
        texts.add_field(TEXTS, size.counted(as_utf8(raw)))
        pieces.add_field(RAW, raw)
    return Pieces.of(texts, pieces).joined()


def as_utf8(raw: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes as UTF-8 text. Each maximal ill-formed part becomes one U+FFFD."""
    decoder = getincrementaldecoder("utf-8")("replace")
    for piece in raw:
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def apply_chat_template(request: pb.ApplyChatTemplateRequest, model: ModelRuntime, served: ServedModel) -> Encoded:
    """Renders the prompt that Generate would evaluate."""
    rendered = model.text.render(read_chat(request.chat))
    pieces, size = Pieces(), ReplySize("chat", served)
    pieces.add_field(PROMPT, size.counted([rendered.text.encode()]))
    for part in model.tokenizer.encode_parts(rendered.spans, add_special_tokens=False):
        for ids in sliced(part):
            for piece in size.counted([pb.ApplyChatTemplateResponse(token_ids=ids).SerializeToString()]):
                pieces.add(piece)
    return pieces.joined()


class ReplySize:
    """Counts the bytes of a reply. Raises if they exceed the limit of a message."""

    def __init__(self, path: str, served: ServedModel) -> None:
        """`path` is the field that the error names."""
        self._path = path
        self._most = served.settings.limits.max_message_bytes
        self._n_bytes = 0

    def add(self, n_bytes: int) -> None:
        """Adds bytes. Raises FIELD_INVALID if the reply is too large to be sent."""
        self._n_bytes += n_bytes
        if self._n_bytes > self._most:
            words = f"the reply has more than limits.max_message_bytes = {self._most} bytes"
            raise invalid(self._path, words)

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, each counted, and once the bytes of a field's header."""
        self.add(FRAME_BYTES)
        for piece in pieces:
            self.add(len(piece))
            yield piece


def sliced(items: Sequence[int]) -> Iterator[Sequence[int]]:
    """A sequence in slices: one call over all of it would block every other thread of Python."""
    for first in range(0, len(items), SLICE):
        yield items[first : first + SLICE]
