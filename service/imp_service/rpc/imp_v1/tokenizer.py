"""TokenizerService: text to tokens and back, conversations to prompts, and the tokenizer itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from imp_service.generation import ModelRuntime
from imp_service.pb import tokenizer_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded, Pieces
from imp_service.rpc.imp_v1.requests.check_request import checked
from imp_service.rpc.imp_v1.requests.read_requests import read_chat
from imp_service.rpc.imp_v1.write_replies import write_media
from imp_service.rpc.tokenizer_archive import TokenizerArchive
from imp_service.serving.large_replies import ReplySize, as_text, check_text_size, sliced
from imp_service.serving.prompt_cost import ids_bytes, reading_bytes
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.text import FieldInvalid, TextSpan, Tokenizer

RESULTS = pb.TokenizeResponse.DESCRIPTOR.fields_by_name["results"].number
TEXTS, RAW = (pb.DetokenizeResponse.DESCRIPTOR.fields_by_name[name].number for name in ("texts", "raw"))
PROMPT = pb.ApplyChatTemplateResponse.DESCRIPTOR.fields_by_name["text"].number


class TokenizerServicer:
    """On the event loop's thread. Workers do the work."""

    def __init__(self, state: ServerState, archive: TokenizerArchive) -> None:
        self._state = state
        self._archive = archive

    async def Tokenize(self, request: pb.TokenizeRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._state)
        tokenizer = self._state.model.tokenizer
        n_bytes = sum(reading_bytes(text, renders_quickly=True) for text in request.texts)
        return await self._state.workers.run(lambda: tokenize(request, tokenizer, served), n_bytes)

    async def Detokenize(self, request: pb.DetokenizeRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._state)
        tokenizer = self._state.model.tokenizer
        n_bytes = ids_bytes(sum(len(item.ids) for item in request.token_ids))
        return await self._state.workers.run(lambda: detokenize(request, tokenizer, served), n_bytes)

    async def ApplyChatTemplate(self, request: pb.ApplyChatTemplateRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._state)
        model = self._state.model
        n_bytes = reading_bytes(read_chat(request.chat), renders_quickly=model.text.renders_quickly)
        return await self._state.workers.run(lambda: apply_chat_template(request, model, served), n_bytes)

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
    # Checked first: the reply has each text twice.
    check_text_size("token_ids", (item.ids for item in request.token_ids for _ in range(2)), tokenizer, served)
    pieces, texts = Pieces(), Pieces()
    size = ReplySize("token_ids", served)
    for item in request.token_ids:
        parts = tokenizer.decode_parts(sliced(item.ids), special_tokens=request.special_tokens)
        raw = list(size.counted(parts))
        texts.add_field(TEXTS, size.counted(as_utf8(raw)))
        pieces.add_field(RAW, raw)
    return Pieces.of(texts, pieces).joined()


def as_utf8(raw: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes as UTF-8 text. Each maximal ill-formed part becomes one U+FFFD."""
    return (piece.encode() for piece in as_text(raw))


def apply_chat_template(request: pb.ApplyChatTemplateRequest, model: ModelRuntime, served: ServedModel) -> Encoded:
    """Renders the prompt that Generate would evaluate."""
    prompt = model.prompts.rendered(read_chat(request.chat))
    pieces, size = Pieces(), ReplySize("chat", served)
    pieces.add_field(PROMPT, size.counted([prompt.text.encode()]))
    for part in prompt.id_parts:
        for ids in sliced(part):
            for piece in size.counted([pb.ApplyChatTemplateResponse(token_ids=ids).SerializeToString()]):
                pieces.add(piece)
    media = pb.ApplyChatTemplateResponse(media=write_media(prompt.media))
    for piece in size.counted([media.SerializeToString()]):
        pieces.add(piece)
    return pieces.joined()
