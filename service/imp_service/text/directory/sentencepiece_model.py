"""Reads tokenizer.model, the protobuf message of SentencePiece, into the keys of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from imp_service.text.directory.added_entries import read_further
from imp_service.text.directory.json_files import MAX_TOKENIZER_BYTES
from imp_service.text.directory.special_names import SpecialNames
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.metadata import PREFIX
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.tokens.special_tokens import EOS_OF_CONFIG, read_suppressed
from imp_service.text.tokens.vocabulary import MAX_TOKENS

FILE = "tokenizer.model"
# SentencePiece's model types, and what GGUF calls them. The others cut a text at blanks, or at every character.
_MODELS = {1: "t5", 2: "llama"}
_NAMES = {3: "words", 4: "characters"}

_Field = descriptor_pb2.FieldDescriptorProto
# Message -> (field, number, type), as far as a tokenizer needs them. The types of pieces are those of GGUF.
_MESSAGES: Mapping[str, tuple[tuple[str, int, int, str], ...]] = {
    "Piece": (
        ("piece", 1, _Field.TYPE_BYTES, ""),
        ("score", 2, _Field.TYPE_FLOAT, ""),
        ("type", 3, _Field.TYPE_INT32, "1"),
    ),
    "Trainer": (
        ("model_type", 3, _Field.TYPE_INT32, "1"),
        ("unk_id", 40, _Field.TYPE_INT32, "0"),
        ("treat_whitespace_as_suffix", 24, _Field.TYPE_BOOL, "false"),
        ("bos_id", 41, _Field.TYPE_INT32, "1"),
        ("eos_id", 42, _Field.TYPE_INT32, "2"),
    ),
    "Normalizer": (
        ("precompiled_charsmap", 2, _Field.TYPE_BYTES, ""),
        ("add_dummy_prefix", 3, _Field.TYPE_BOOL, "true"),
        ("remove_extra_whitespaces", 4, _Field.TYPE_BOOL, "true"),
    ),
}


def keys_of_model(
    content: bytes, files: Mapping[str, bytes], names: SpecialNames, metadata: Mapping[str, object], n_rows: int | None
) -> dict[str, object]:
    """The keys of a GGUF file for the same vocabulary."""
    message = _parsed(content)
    tokens, scores, types = _pieces(message)
    _add_further(tokens, types, files, names, n_rows)
    scores += [0.0] * (len(tokens) - len(scores))
    ids = {token: i for i, token in reversed(list(enumerate(tokens)))}
    normalizer, trainer = message.normalizer_spec, message.trainer_spec
    keys: dict[str, object] = {
        "model": _MODELS[trainer.model_type],
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "add_space_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "precompiled_charsmap": normalizer.precompiled_charsmap,
        "suppress_tokens": list(read_suppressed(metadata, len(tokens))),
    }
    for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown")):
        token_id = _id_of(role, names, ids, getattr(trainer, f"{role}_id"), len(tokens))
        if token_id is not None:
            keys[f"{name}_token_id"] = token_id
    for role, adds in (("bos", names.adds_bos), ("eos", names.adds_eos)):
        if adds is not None:
            keys[f"add_{role}_token"] = adds and f"{role}_token_id" in keys
    separator = ids.get(names.spelled.get("sep_token", "").encode())
    if separator is not None:
        keys["separator_token_id"] = separator
    return {PREFIX + name: value for name, value in keys.items()} | {EOS_OF_CONFIG: keys.get("eos_token_id")}


def _id_of(role: str, names: SpecialNames, ids: Mapping[bytes, int], stated: int, n_tokens: int) -> int | None:
    text = names.spelled.get(f"{role}_token")
    if text is not None:
        return ids.get(text.encode())
    if f"{role}_token" in names.config.members:
        return None
    return stated if 0 <= stated < n_tokens else None


def _parsed(content: bytes) -> Any:
    if len(content) > MAX_TOKENIZER_BYTES:
        raise TokenizerInvalid(FILE, f"more than {MAX_TOKENIZER_BYTES} bytes")
    message = _model_class()()
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise TokenizerInvalid(FILE, "is no SentencePiece model") from error
    if not message.pieces:
        raise TokenizerInvalid(FILE, "is no SentencePiece model: it has no pieces")
    if len(message.pieces) > MAX_TOKENS:
        raise TokenizerInvalid(FILE, f"{len(message.pieces)} tokens, limit {MAX_TOKENS}")
    kind = message.trainer_spec.model_type
    if kind not in _MODELS:
        raise TokenizerInvalid(FILE, f"a model of {_NAMES.get(kind, kind)}, expected unigram or BPE")
    if message.trainer_spec.treat_whitespace_as_suffix:
        raise TokenizerInvalid(FILE, "treat_whitespace_as_suffix: spaces at the ends of words are not supported")
    return message


def _pieces(message: Any) -> tuple[list[bytes], list[float], list[int]]:
    tokens, scores, types = [], [], []
    for piece in message.pieces:
        tokens.append(piece.piece)
        scores.append(piece.score)
        types.append(piece.type)
    return tokens, scores, types


def _add_further(
    tokens: list[bytes], types: list[int], files: Mapping[str, bytes], names: SpecialNames, n_rows: int | None
) -> None:
    """Tokens that the other files add, or put in the place of one that is not used."""
    for token in read_further(files, names, n_rows):
        if token.token_id >= MAX_TOKENS:
            raise TokenizerInvalid(FILE, f"{token.token_id + 1} tokens, limit {MAX_TOKENS}")
        while len(tokens) <= token.token_id:
            tokens.append(b"")
            types.append(TokenType.UNUSED)
        is_new = tokens[token.token_id] != token.text.encode()
        tokens[token.token_id] = token.text.encode()
        if token.is_special and types[token.token_id] != TokenType.UNKNOWN:
            types[token.token_id] = TokenType.CONTROL
        elif is_new:
            types[token.token_id] = TokenType.USER_DEFINED
    for i, token_bytes in enumerate(tokens):
        if types[i] == TokenType.NORMAL and token_bytes.decode("utf-8", "replace") in names.special:
            types[i] = TokenType.CONTROL


@cache
def _model_class() -> Any:
    """The class of the message, from the fields above."""
    file = descriptor_pb2.FileDescriptorProto(name="imp/sentencepiece.proto", package="imp.sentencepiece")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, default in fields:
            message.field.add(
                name=field, number=number, type=kind, label=_Field.LABEL_OPTIONAL, default_value=default or None
            )
    model = file.message_type.add(name="Model")
    for number, (field, name) in enumerate(
        (("pieces", "Piece"), ("trainer_spec", "Trainer"), ("normalizer_spec", "Normalizer")), start=1
    ):
        label = _Field.LABEL_REPEATED if number == 1 else _Field.LABEL_OPTIONAL
        model.field.add(
            name=field, number=number, type=_Field.TYPE_MESSAGE, label=label, type_name=f".imp.sentencepiece.{name}"
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("imp.sentencepiece.Model"))
