"""Special tokens: the ids that begin, end and separate a text, and the keys or spellings that define them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, count

import numpy as np
from numpy.typing import NDArray

from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.infill import stated_infill
from imp_service.text.tokens.metadata import PREFIX, TokenizerMetadata
from imp_service.text.tokens.piece_types import TokenType

# The ids that end a text, ascending, each with the keys and spellings that define it.
EndSources = Mapping[int, tuple[str, ...]]

# Keys of a GGUF file that hold one id.
_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# A key that holds several ids, which some writers add.
_LIST_KEY = "eos_token_ids"
# Keys of a directory's config.json and generation_config.json, one id or several, and the token of
# tokenizer_config.json.
EOS_OF_CONFIG = "tokenizer_config.eos_token"
_DIRECTORY_KEYS = ("eos_token_id", "generation_config.eos_token_id", EOS_OF_CONFIG)
OVERRIDE = "model.overrides.eos_token_ids"

# The tokens that end a turn in the published families. A file names one or two of them at most, and may mark them as
# plain text. No other token is spelled like this, so the type does not matter.
_SPELLINGS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
)
# Ordinary text, such as HTML, may contain these: with such a spelling only a control token is an end.
_CONTROL_SPELLINGS = ("</s>", "<eos>", "_<EOT>", "\u2581<EOT>")


def mark_control(pieces: Sequence[bytes], types: NDArray[np.uint8]) -> None:
    """Makes control tokens of ends by spelling, and of `</s>` if `<s>` is one but `</s>` is marked as text.

    Users' text must not produce an end token.
    """
    begin, end = b"<s>", b"</s>"
    ids: dict[bytes, list[int]] = {}
    for token_id in _spelled(pieces, (*_SPELLINGS, begin.decode(), end.decode())):
        ids.setdefault(pieces[token_id], []).append(token_id)
    first_begin, first_end = ids.pop(begin, [])[:1], ids.pop(end, [])[:1]
    types[list(chain(*ids.values()))] = TokenType.CONTROL
    if (types[first_begin] == TokenType.CONTROL).any() and (types[first_end] == TokenType.USER_DEFINED).any():
        types[first_end] = TokenType.CONTROL


def read_ends(
    metadata: Mapping[str, object],
    pieces: Sequence[bytes],
    types: NDArray[np.uint8],
    override: Sequence[int] | None = None,
) -> EndSources:
    """The ends of a vocabulary: by the file's keys and by spelling, or those of the override alone."""
    n_tokens = len(pieces)
    if override is not None:
        return _overriding(override, n_tokens)
    return _by_id([*_stated(metadata, n_tokens), *_by_spelling(pieces, types)])


def read_stated_ends(
    metadata: Mapping[str, object], n_tokens: int, override: Sequence[int] | None = None
) -> EndSources:
    """The same without a vocabulary: only from the keys."""
    return _by_id([*_stated(metadata, n_tokens)]) if override is None else _overriding(override, n_tokens)


def _by_id(found: Sequence[tuple[int, str]]) -> EndSources:
    sources: dict[int, list[str]] = {}
    for token_id, source in found:
        sources.setdefault(token_id, []).append(source)
    return {token_id: tuple(sources[token_id]) for token_id in sorted(sources)}


def _overriding(override: Sequence[int], n_tokens: int) -> EndSources:
    for token_id in override:
        if not 0 <= token_id < n_tokens:
            raise TokenizerInvalid(OVERRIDE, f"token id {token_id}, expected 0 to {n_tokens - 1}")
    return dict.fromkeys(sorted(set(override)), (OVERRIDE,))


def _stated(metadata: Mapping[str, object], n_tokens: int) -> Iterator[tuple[int, str]]:
    keys = TokenizerMetadata(metadata)
    for name in _KEYS:
        token_id = keys.token_id(name, n_tokens)
        if token_id is not None:
            yield token_id, PREFIX + name
    for token_id in keys.token_ids(_LIST_KEY, n_tokens):
        yield token_id, PREFIX + _LIST_KEY
    for key in _DIRECTORY_KEYS:
        for token_id in _ids_under(metadata, key, n_tokens):
            yield token_id, key


def _ids_under(metadata: Mapping[str, object], key: str, n_tokens: int) -> Iterator[int]:
    """A negative id means none, as in transformers."""
    value = metadata.get(key)
    for token_id in [] if value is None else np.atleast_1d(np.asarray(value)).tolist():
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id >= n_tokens:
            raise TokenizerInvalid(key, f"{token_id!r}, expected a token id from 0 to {n_tokens - 1}")
        if token_id >= 0:
            yield token_id


def read_suppressed(metadata: Mapping[str, object], n_tokens: int) -> tuple[int, ...]:
    """Ids that a directory's generation_config.json suppresses, ascending."""
    return tuple(sorted(set(_ids_under(metadata, "generation_config.suppress_tokens", n_tokens))))


def _by_spelling(pieces: Sequence[bytes], types: NDArray[np.uint8]) -> Iterator[tuple[int, str]]:
    spelled = {token_id: pieces[token_id].decode() for token_id in _spelled(pieces, (*_SPELLINGS, *_CONTROL_SPELLINGS))}
    found = {text: i for i, text in spelled.items() if text in _SPELLINGS or types[i] == TokenType.CONTROL}
    if "<|return|>" in found or "<|calls|>" in found:
        found.pop("<|end|>", None)  # there the end of a message inside a turn
    if "<|tool_response>" in found:
        found.pop("</s>", None)  # there the end of HTML's struck-out text, whatever its type
    for text, token_id in found.items():
        yield token_id, f"spelled {text}"


def _spelled(pieces: Sequence[bytes], texts: Sequence[str]) -> Iterator[int]:
    spellings = {text.encode() for text in texts}
    return compress(count(), map(spellings.__contains__, pieces))


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids with a special role; None if the file names none."""

    bos: int | None
    eos: int | None
    unknown: int | None
    separator: int | None
    # All ids that end a text, and their sources.
    ends: EndSources
    # Never to be sampled.
    suppressed: tuple[int, ...]
    # The ids with which the file says that the model fills in the middle, by their role.
    infill: Mapping[str, int] = field(default_factory=dict)


# Unicode's white space, which a stripping token removes from the text after it.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# A model file does not say which tokens strip white space. As in llama.cpp, the name of the model decides.
_STRIPPING_MODELS = ("phi-3", "phi3")
_NOT_STRIPPING = frozenset({b"<unk>", b"<s>", b"<|endoftext|>"})


def read_right_stripping(keys: TokenizerMetadata, pieces: Sequence[bytes], types: NDArray[np.uint8]) -> frozenset[int]:
    """Ids of special tokens that strip the white space after them."""
    name = keys.metadata.get("general.name")
    if isinstance(name, bytes):  # not UTF-8
        name = name.decode("utf-8", "replace")
    if not isinstance(name, str) or not any(part in name.lower() for part in _STRIPPING_MODELS):
        return frozenset()
    added = np.isin(types, (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)).nonzero()[0].tolist()
    return frozenset(token_id for token_id in added if pieces[token_id] not in _NOT_STRIPPING)


def read_special_ids(
    keys: TokenizerMetadata, pieces: list[bytes], types: NDArray[np.uint8], end_ids: Sequence[int] | None = None
) -> SpecialIds:
    """The roles that the file and its vocabulary name. `end_ids` replace every end that the file names."""
    n_tokens = len(pieces)
    named = {name: keys.token_id(f"{name}_token_id", n_tokens) for name in ("bos", "eos", "unknown")}
    for name in ("eot", "eom", "padding", "mask"):
        keys.token_id(f"{name}_token_id", n_tokens)
    # The format's own spelling of the key is the first one.
    separator = keys.token_id("seperator_token_id", n_tokens)
    if separator is None:
        separator = keys.token_id("separator_token_id", n_tokens)
    bos = named["bos"] if named["bos"] is not None else keys.token_id("cls_token_id", n_tokens)
    return SpecialIds(
        bos=bos,
        eos=named["eos"],
        unknown=named["unknown"],
        separator=separator,
        ends=read_ends(keys.metadata, pieces, types, end_ids),
        suppressed=keys.token_ids("suppress_tokens", n_tokens),
        infill=stated_infill(keys, n_tokens),
    )
