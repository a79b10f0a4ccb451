"""Makes a tokenizer.json of a byte-level vocabulary in other files: vocab.json with merges.txt, or tekken.json."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from imp_service.text.directory.added_entries import AddedEntry, read_further
from imp_service.text.directory.json_files import MAX_TOKENIZER_BYTES, JsonObject, read_json_object
from imp_service.text.directory.special_names import SpecialNames
from imp_service.text.errors import TokenizerInvalid, UnknownPreTokenizer
from imp_service.text.tokens.piece_types import BYTE_TO_CHAR
from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from imp_service.text.tokens.vocabulary import MAX_MERGES, MAX_TOKENS, PRE_OVERRIDE

VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
TEKKEN_FILE = "tekken.json"
# Which rule a class of `transformers` cuts words by.
_RULE_OF_CLASS = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}
# By id.
_TEKKEN_ROLES = ("unk_token", "bos_token", "eos_token")


def of_vocab_and_merges(files: Mapping[str, bytes], names: SpecialNames, pre: str | None) -> JsonObject:
    """`pre` names the rule for words, if the settings do."""
    vocab = read_json_object(VOCAB_FILE, files[VOCAB_FILE], max_bytes=MAX_TOKENIZER_BYTES)
    rule = _rule_of(names, pre)
    document = _document(rule, dict(vocab.members), _merge_lines(files[MERGES_FILE]))
    document["added_tokens"] = [_described(token) for token in read_further(files, names, None)]
    return JsonObject(VOCAB_FILE, document)


def of_tekken(files: Mapping[str, bytes]) -> tuple[JsonObject, dict[str, str]]:
    """Mistral's file: bytes by rank, behind the special tokens. The merges follow from the ranks.

    Returns the roles of special tokens too: the format gives them by their ids.
    """
    source = read_json_object(TEKKEN_FILE, files[TEKKEN_FILE], max_bytes=MAX_TOKENIZER_BYTES)
    config = source.object("config")
    if config is None:
        raise source.fail("config", "missing")
    n_special = config.token_id("default_num_special_tokens")
    n_tokens = config.token_id("default_vocab_size")
    if not n_special <= n_tokens <= MAX_TOKENS:
        raise config.fail("default_vocab_size", f"{n_tokens}, expected {n_special} to {MAX_TOKENS}")
    pieces = [_bytes_of(entry) for entry in source.objects("vocab")[: n_tokens - n_special]]
    rank_of = {piece: rank for rank, piece in enumerate(pieces)}
    vocab = {_spelled(piece): n_special + rank for piece, rank in rank_of.items()}
    rule = PreTokenizer((config.text("pattern") or "",), ignores_merges=True)
    document = _document(rule, vocab, _merges_of(pieces, rank_of))
    special = {i: f"<SPECIAL_{i}>" for i in range(n_special)}
    special |= {entry.token_id("rank"): entry.text("token_str") or "" for entry in source.objects("special_tokens")}
    document["added_tokens"] = [
        {"id": i, "content": text, "special": True, "normalized": False} for i, text in sorted(special.items())
    ]
    roles = {role: special[i] for i, role in enumerate(_TEKKEN_ROLES) if i in special}
    bos = roles.get("bos_token")
    if bos is not None:
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {bos: {"id": bos, "ids": [_TEKKEN_ROLES.index("bos_token")], "tokens": [bos]}},
        }
    return JsonObject(TEKKEN_FILE, document), roles


def _document(rule: PreTokenizer, vocab: Mapping[str, Any], merges: list[Any]) -> dict[str, Any]:
    normalizer, pre_tokenizer = rule.build_normalizer(), rule.build()
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None if normalizer is None else json.loads(normalizer.__getstate__()),
        "pre_tokenizer": None if pre_tokenizer is None else json.loads(pre_tokenizer.__getstate__()),
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": rule.ignores_merges},
    }


def _rule_of(names: SpecialNames, pre: str | None) -> PreTokenizer:
    stated = names.config.text("tokenizer_class") or ""
    name = pre or _RULE_OF_CLASS.get(stated.removesuffix("Fast"))
    rule = PRE_TOKENIZERS.get(name or "")
    if rule is None or rule.is_sentencepiece:
        found = f"tokenizer_class {stated or 'missing'}" if pre is None else f"{pre!r:.64}: no such rule"
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnknownPreTokenizer(
            VOCAB_FILE if pre is None else PRE_OVERRIDE,
            f"{found}; set {PRE_OVERRIDE} to what the model's author specifies, one of {known}",
        )
    return rule


def _merge_lines(content: bytes) -> list[str]:
    if len(content) > MAX_TOKENIZER_BYTES:
        raise TokenizerInvalid(MERGES_FILE, f"more than {MAX_TOKENIZER_BYTES} bytes")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerInvalid(MERGES_FILE, "not UTF-8") from error
    if lines and lines[0].startswith("#version"):
        del lines[0]
    lines = [line.rstrip("\r") for line in lines if line.strip()]
    if len(lines) > MAX_MERGES:
        raise TokenizerInvalid(MERGES_FILE, f"{len(lines)} merges, limit {MAX_MERGES}")
    return lines


def _described(token: AddedEntry) -> dict[str, object]:
    matching = token.matching
    return {
        "id": token.token_id,
        "content": token.text,
        "special": token.is_special,
        "lstrip": matching.strips_left,
        "rstrip": matching.strips_right,
        "single_word": matching.is_whole_word,
        "normalized": matching.is_normalized,
    }


def _bytes_of(entry: JsonObject) -> bytes:
    try:
        return base64.b64decode(entry.text("token_bytes") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise entry.fail("token_bytes", "not base64") from error


def _spelled(piece: bytes) -> str:
    return "".join(map(BYTE_TO_CHAR.__getitem__, piece))


def _merges_of(pieces: list[bytes], rank_of: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """Each way to make a token of two, in the order of the tokens; of one token's ways, by the ranks of the parts."""
    merges = []
    for piece in pieces:
        cuts = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
        known = [(rank_of[left], rank_of[right]) for left, right in cuts if left in rank_of and right in rank_of]
        merges += [(_spelled(pieces[left]), _spelled(pieces[right])) for left, right in sorted(known)]
    return merges
