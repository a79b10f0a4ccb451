"""A model's vocabulary from its file, checked: the bytes and the type of each id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from imp_service.text.errors import TokenizerInvalid, UnknownPreTokenizer
from imp_service.text.tokens.added_tokens import MatchRule, MatchRules
from imp_service.text.tokens.metadata import TokenizerMetadata
from imp_service.text.tokens.pair_form import PairForm, form_of_singles
from imp_service.text.tokens.piece_types import BYTE_TO_CHAR, SPECIAL_TYPES, TokenType, VocabularyKind, render_pieces
from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer, Step
from imp_service.text.tokens.special_tokens import (
    SpecialIds,
    mark_control,
    read_right_stripping,
    read_special_ids,
)

_TOKENS_KEY = "tokenizer.ggml.tokens"
PRE_OVERRIDE = "model.overrides.pre_tokenizer"
MAX_TOKENS = 4 << 20
MAX_MERGES = 4 << 20
MAX_TOKEN_BYTES = 4096
_BYTE_PIECES = frozenset(char.encode() for char in BYTE_TO_CHAR)
# Published byte-level vocabularies lack bytes that are no part of UTF-8, some control characters and the first bytes of
# the private planes; one that lacks any of these was not made from text.
_NEEDED_BYTES = frozenset([*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1)])


class Prefix(Enum):
    """Which segments of text between special tokens begin with a space that is put there."""

    NONE = "none"
    FIRST = "the one with which the text begins"
    EACH = "each"
    # As EACH, but tokens that are found in normalized text do not end a segment.
    NORMALIZED = "each that is normalized by itself"


@dataclass(frozen=True, slots=True)
class CutRules:
    """The facts that decide whether a long text may be cut into parts that are encoded separately."""

    # The words are split by patterns on the text itself, and each pattern looks ahead only a few words.
    has_plain_words: bool
    # No token and no unknown segment reaches across a space.
    splits_at_spaces: bool
    # The text is first normalized by canonical composition.
    composes: bool
    # No known property of the vocabulary forbids it.
    is_allowed: bool = True


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Checked facts from which a `Tokenizer` is built."""

    kind: VocabularyKind
    # The key or the file that lists the tokens.
    place: str
    pre: str
    # Only of GGUF files: the library's own files describe their pre-tokenizer.
    rule: PreTokenizer | None
    cut_rules: CutRules
    # As in the file: in the byte alphabet, with space marks, or plain.
    pieces: tuple[bytes, ...]
    # The bytes of each id in text.
    token_bytes: tuple[bytes, ...]
    types: NDArray[np.uint8]
    scores: NDArray[np.float32] | None
    # As in the file. The code that builds a tokenizer checks them.
    merges: tuple[bytes, ...]
    # Bytes that a byte-level vocabulary cannot spell: text that contains them cannot be encoded.
    missing_bytes: bytes
    special: SpecialIds
    # How special tokens, and tokens that are matched in any text, are matched.
    match_rules: MatchRules
    # The ids around a text that gets special tokens.
    before: tuple[int, ...]
    after: tuple[int, ...]
    # The ids around the texts of a pair; None: the file has no form of a pair.
    pair: PairForm | None
    prefix: Prefix
    removes_extra_spaces: bool
    # `removes_extra_spaces` strips all white space from the ends, as llama.cpp does; SentencePiece strips spaces.
    strips_white_space: bool
    character_map: bytes
    lowercases: bool
    strips_accents: bool

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def adds_space_prefix(self) -> bool:
        """Some text gets a space before it."""
        return self.prefix is not Prefix.NONE

    @property
    def has_all_bytes(self) -> bool:
        """Whether every byte is a token, so that no text is unknown."""
        is_byte = self.types == TokenType.BYTE
        return len({self.token_bytes[token_id] for token_id in is_byte.nonzero()[0].tolist()}) == 256

    def special_ids(self) -> frozenset[int]:
        """Ids that are no text."""
        return frozenset(np.isin(self.types, SPECIAL_TYPES).nonzero()[0].tolist())

    def sha256(self) -> str:
        """The digest of the table. Models with equal digests have the same ids."""
        return hashlib.sha256(self.table()).hexdigest()

    def encoding_sha256(self, document: bytes | None) -> str:
        """The digest of what decides the ids of a text: the table, how text is divided, merged and scored.

        `document` is the tokenizer.json that says it in place of the other fields, if there is one.
        """
        texts = (self.kind.value, self.pre, self.before, self.after, self.prefix.value, self.removes_extra_spaces,
                 self.strips_white_space, self.lowercases, self.strips_accents)  # fmt: skip
        rules = sorted(self.match_rules.items()) if document is None else []
        digest = hashlib.sha256(repr((texts, rules)).encode())
        scores = b"" if self.scores is None else self.scores.tobytes()
        pieces = () if document is not None else (b"\0".join(self.pieces), b"\0".join(self.merges))
        for part in (self.types.tobytes(), scores, self.character_map, document or b"", *pieces):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def table(self) -> bytes:
        """For each id, in order: the length of its bytes (4 bytes, little endian), its type (1 byte) and its bytes."""
        heads = np.zeros(len(self), np.dtype([("n_bytes", "<u4"), ("type", "u1")]))
        heads["n_bytes"] = np.fromiter(map(len, self.token_bytes), np.uint32, len(self))
        heads["type"] = self.types
        ends = np.cumsum(heads["n_bytes"] + heads.itemsize, dtype=np.int64)
        begins = ends - heads["n_bytes"] - heads.itemsize
        table = np.empty(ends[-1], np.uint8)
        is_text = np.ones(len(table), np.bool_)
        for at in range(heads.itemsize):
            table[begins + at] = heads.view(np.uint8).reshape(len(self), -1)[:, at]
            is_text[begins + at] = False
        table[is_text] = np.frombuffer(b"".join(self.token_bytes), np.uint8)
        return table.tobytes()


def read_vocabulary(
    metadata: Mapping[str, object], *, pre: str | None = None, end_ids: Sequence[int] | None = None
) -> Vocabulary:
    """Reads and checks the vocabulary. `pre` replaces the file's `tokenizer.ggml.pre`, `end_ids` its end tokens."""
    keys = TokenizerMetadata(metadata)
    pieces = _read_pieces(keys)
    kind, pre_name, rule = _read_kind(keys, pre)
    types = _read_types(keys, pieces)
    scores = _read_scores(keys, len(pieces))
    if scores is None and kind in (VocabularyKind.SCORED_MERGES, VocabularyKind.UNIGRAM):
        raise keys.fail("scores", f"missing; {kind.value} needs them")
    special = read_special_ids(keys, pieces, types, end_ids)
    merges = _read_merges(keys, kind)
    before, after = _read_additions(keys, kind, rule, special)
    lowercases = _or(keys.flag("normalizer.lowercase"), True)
    return Vocabulary(
        kind=kind,
        place=_TOKENS_KEY,
        pre=pre_name,
        rule=rule,
        cut_rules=_read_cut_rules(kind, rule),
        pieces=tuple(pieces),
        token_bytes=render_pieces(kind, pieces, types),
        types=types,
        scores=scores,
        merges=merges,
        missing_bytes=missing_bytes(_TOKENS_KEY, pieces) if kind is VocabularyKind.BYTE_LEVEL else b"",
        special=special,
        match_rules=dict.fromkeys(read_right_stripping(keys, pieces, types), MatchRule(strips_right=True)),
        before=before,
        after=after,
        pair=form_of_singles(before, after, has_types=kind is VocabularyKind.WORD_PIECE),
        prefix=_read_prefix(keys, kind),
        removes_extra_spaces=_or(keys.flag("remove_extra_whitespaces"), False),
        strips_white_space=True,
        character_map=keys.byte_string("precompiled_charsmap") or b"",
        lowercases=lowercases,
        strips_accents=_or(keys.flag("normalizer.strip_accents"), lowercases),
    )


def _read_prefix(keys: TokenizerMetadata, kind: VocabularyKind) -> Prefix:
    by_default = kind in (VocabularyKind.SCORED_MERGES, VocabularyKind.UNIGRAM)
    return Prefix.EACH if _or(keys.flag("add_space_prefix"), by_default) else Prefix.NONE


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _read_pieces(keys: TokenizerMetadata) -> list[bytes]:
    pieces = keys.byte_strings("tokens")
    if not pieces:
        raise keys.fail("tokens", "missing or empty")
    check_pieces(_TOKENS_KEY, pieces)
    return pieces


def require_rows(place: str, n_tokens: int, n_rows: int) -> None:
    """Raises TokenizerInvalid where the model has fewer embedding rows than there are ids."""
    if n_tokens > n_rows:
        raise TokenizerInvalid(place, f"{n_tokens} tokens, the model has {n_rows} embedding rows")


def check_pieces(path: str, pieces: Sequence[bytes]) -> None:
    """Raises TokenizerInvalid if there are too many tokens, or if one is too long."""
    if len(pieces) > MAX_TOKENS:
        raise TokenizerInvalid(path, f"{len(pieces)} tokens, limit {MAX_TOKENS}")
    if max(map(len, pieces)) > MAX_TOKEN_BYTES:
        token_id = next(i for i, piece in enumerate(pieces) if len(piece) > MAX_TOKEN_BYTES)
        raise TokenizerInvalid(path, f"token {token_id}: {len(pieces[token_id])} bytes, limit {MAX_TOKEN_BYTES}")


def _read_kind(keys: TokenizerMetadata, override: str | None) -> tuple[VocabularyKind, str, PreTokenizer | None]:
    model = keys.text("model")
    pre = override if override is not None else keys.text("pre")
    match model:
        case "gpt2" | "gemma4":
            if pre is None and model == "gemma4":
                pre = model
            rule = _find_rule(pre, override)
            kind = VocabularyKind.LISTED_MERGES if rule.is_sentencepiece else VocabularyKind.BYTE_LEVEL
            return kind, pre or "", rule
        case "llama":
            return VocabularyKind.SCORED_MERGES, pre or "", None
        case "t5":
            return VocabularyKind.UNIGRAM, pre or "", None
        case "bert":
            return VocabularyKind.WORD_PIECE, pre or "", None
        case None:
            raise keys.fail("model", "missing")
        case _:
            raise keys.fail("model", f"unknown tokenizer {model!r}, known: bert, gemma4, gpt2, llama, t5")


def _find_rule(pre: str | None, override: str | None) -> PreTokenizer:
    rule = PRE_TOKENIZERS.get(pre) if pre is not None else None
    if rule is None:
        found = "missing" if pre is None else f"unknown pre-tokenizer {pre[:64]!r}"
        key = "tokenizer.ggml.pre" if override is None else PRE_OVERRIDE
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnknownPreTokenizer(
            key, f"{found}; set {PRE_OVERRIDE} to the rule that the model's author specifies, one of {known}"
        )
    return rule


def _read_types(keys: TokenizerMetadata, pieces: list[bytes]) -> NDArray[np.uint8]:
    values = keys.integers("token_type")
    if values is None:
        types = np.full(len(pieces), TokenType.NORMAL, dtype=np.uint8)
    else:
        if len(values) != len(pieces):
            raise keys.fail("token_type", f"{len(values)} entries, expected {len(pieces)}")
        bad = (values < min(TokenType)) | (values > max(TokenType))
        if bad.any():
            token_id = int(np.flatnonzero(bad)[0])
            raise keys.fail("token_type", f"token {token_id}: unknown type {values[token_id]}")
        types = values.astype(np.uint8)
    mark_control(pieces, types)
    types.flags.writeable = False
    return types


def _read_scores(keys: TokenizerMetadata, n_tokens: int) -> NDArray[np.float32] | None:
    scores = keys.floats("scores")
    if scores is None:
        return None
    if len(scores) != n_tokens:
        raise keys.fail("scores", f"{len(scores)} entries, expected {n_tokens}")
    if not np.isfinite(scores).all():
        raise keys.fail("scores", f"token {int(np.flatnonzero(~np.isfinite(scores))[0])}: not finite")
    return scores


def _read_merges(keys: TokenizerMetadata, kind: VocabularyKind) -> tuple[bytes, ...]:
    if kind not in (VocabularyKind.BYTE_LEVEL, VocabularyKind.LISTED_MERGES):
        return ()
    lines = keys.byte_strings("merges")
    if lines is None:
        raise keys.fail("merges", "missing")
    if len(lines) > MAX_MERGES:
        raise keys.fail("merges", f"{len(lines)} merges, limit {MAX_MERGES}")
    return tuple(lines)


def missing_bytes(path: str, pieces: Sequence[bytes]) -> bytes:
    """The bytes that a byte-level vocabulary cannot spell. Raises TokenizerInvalid if text needs one of them."""
    spelled = _BYTE_PIECES.intersection(pieces)
    missing = bytes(byte for byte, char in enumerate(BYTE_TO_CHAR) if char.encode() not in spelled)
    needed = [byte for byte in missing if byte in _NEEDED_BYTES]
    if needed:
        raise TokenizerInvalid(path, f"no token for byte 0x{needed[0]:02X} ({len(missing)} of 256 are missing)")
    return missing


def _read_additions(
    keys: TokenizerMetadata, kind: VocabularyKind, rule: PreTokenizer | None, special: SpecialIds
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    by_default = {
        "bos": kind in (VocabularyKind.SCORED_MERGES, VocabularyKind.WORD_PIECE)
        or (rule is not None and rule.adds_bos),
        "eos": kind is VocabularyKind.UNIGRAM,
        "sep": kind is VocabularyKind.WORD_PIECE,
    }
    ids = {"bos": special.bos, "eos": special.eos, "sep": special.separator}
    added: dict[str, tuple[int, ...]] = {}
    for name, token_id in ids.items():
        asked = keys.flag(f"add_{name}_token")
        if asked and token_id is None:
            raise keys.fail(f"add_{name}_token", "true, but the file names no such token")
        is_added = by_default[name] if asked is None else asked
        added[name] = (token_id,) if is_added and token_id is not None else ()
    return added["bos"], (*added["sep"], *added["eos"])


def _read_cut_rules(kind: VocabularyKind, rule: PreTokenizer | None) -> CutRules:
    return CutRules(
        has_plain_words=rule is not None
        and not rule.is_sentencepiece
        and bool(rule.steps)
        and Step.BYTES not in rule.steps,
        splits_at_spaces=kind in (VocabularyKind.UNIGRAM, VocabularyKind.WORD_PIECE, VocabularyKind.BYTE_LEVEL),
        composes=rule is not None and rule.composes,
    )
