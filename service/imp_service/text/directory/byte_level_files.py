"""Makes a tokenizer.json of a byte-level vocabulary in other files: vocab.json with merges.txt, or tekken.json."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Regex

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
# The roles of the first special tokens, by id.
_TEKKEN_ROLES = ("unk_token", "bos_token", "eos_token")


def of_vocab_and_merges(files: Mapping[str, bytes], names: SpecialNames, pre: str | None) -> JsonObject:
    """`pre` is the pre-tokenizer that the settings name, if any."""
    vocab = read_json_object(VOCAB_FILE, files[VOCAB_FILE], max_bytes=MAX_TOKENIZER_BYTES)
    rule = _rule_of(names, pre)
    document = _document(rule, dict(vocab.members), _merges(files[MERGES_FILE], vocab.members))
    if names.config.flag("add_prefix_space"):
        document["pre_tokenizer"] = _with_prefix_space(rule, document["pre_tokenizer"])
    document["added_tokens"] = [_described(token) for token in read_further(files, names, None)]
    return JsonObject(VOCAB_FILE, document)


def of_tekken(files: Mapping[str, bytes]) -> tuple[JsonObject, dict[str, str]]:
    """Reads Mistral's file, which has the bytes of each rank.

    An id is a rank plus the number of special tokens. The merges follow from the ranks.

    Returns the roles of special tokens too: the format gives them by their ids.
    """
    source = read_json_object(TEKKEN_FILE, files[TEKKEN_FILE], max_bytes=MAX_TOKENIZER_BYTES)
    config = source.object("config")
    if config is None:
        raise source.fail("config", "missing")
    n_special = config.token_id("default_num_special_tokens")
    n_tokens = config.token_id("default_vocab_size")
    entries = source.objects("vocab")
    most = min(MAX_TOKENS, n_special + len(entries))
    if not n_special <= n_tokens <= most:
        raise config.fail("default_vocab_size", f"{n_tokens}, expected {n_special} to {most}")
    rank_of = _ranks(entries[: n_tokens - n_special])
    vocab = {_spelled(piece): n_special + rank for piece, rank in rank_of.items()}
    rule = PreTokenizer((_pattern(config),), ignores_merges=True)
    document = _document(rule, vocab, _merges_of(rank_of))
    special = _special_of_tekken(source.objects("special_tokens"), n_special)
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


def _pattern(config: JsonObject) -> str:
    pattern = config.text("pattern")
    if not pattern:
        raise config.fail("pattern", "missing or empty")
    try:
        Regex(pattern)
    except Exception as error:  # the library has no class for it
        raise config.fail("pattern", f"{error}"[:200]) from error
    return pattern


def _ranks(entries: list[JsonObject]) -> dict[bytes, int]:
    """The tokens' bytes with their ranks, in order."""
    rank_of: dict[bytes, int] = {}
    for rank, entry in enumerate(entries):
        if entry.members.get("rank", rank) != rank:
            raise entry.fail("rank", f"{entry.members['rank']!r:.40}, expected {rank}")
        piece = _bytes_of(entry)
        if rank_of.setdefault(piece, rank) != rank:
            raise entry.fail("token_bytes", f"the bytes of rank {rank_of[piece]} again")
    return rank_of


def _special_of_tekken(entries: list[JsonObject], n_special: int) -> dict[int, str]:
    """The special tokens by id. Those that the file does not name get a name."""
    found: dict[int, str] = {}
    for entry in entries:
        rank, text = entry.token_id("rank"), entry.text("token_str")
        if rank >= n_special or rank in found:
            expected = f"0 to {n_special - 1}, each once"
            raise entry.fail("rank", f"{rank}, expected {expected}")
        if not text or text in found.values():
            raise entry.fail("token_str", f"{text!r:.40} again" if text else "missing or empty")
        found[rank] = text
    return {i: found.get(i, f"<SPECIAL_{i}>") for i in range(n_special)}


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


def _with_prefix_space(rule: PreTokenizer, described: dict[str, Any]) -> dict[str, Any]:
    """GPT-2's class adds the space before it cuts words. Other classes cut first, and each word gets one."""
    *steps, spelling = described["pretokenizers"]
    if rule == PRE_TOKENIZERS["gpt-2"]:
        return {**spelling, "add_prefix_space": True, "use_regex": True}
    return {**described, "pretokenizers": [*steps, {**spelling, "add_prefix_space": True}]}


def _merges(content: bytes, vocab: Mapping[str, Any]) -> list[tuple[str, str]]:
    if len(content) > MAX_TOKENIZER_BYTES:
        raise TokenizerInvalid(MERGES_FILE, f"more than {MAX_TOKENIZER_BYTES} bytes")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerInvalid(MERGES_FILE, "not UTF-8") from error
    merges = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        left, *others = line.rstrip("\r").split(" ")
        if len(others) != 1:
            raise TokenizerInvalid(f"{MERGES_FILE}: line {number}", "expected two tokens with a space between them")
        for name in (left, others[0], left + others[0]):
            if name not in vocab:
                raise TokenizerInvalid(f"{MERGES_FILE}: line {number}", f"{name!r:.64} is not a token")
        merges.append((left, others[0]))
    if len(merges) > MAX_MERGES:
        raise TokenizerInvalid(MERGES_FILE, f"{len(merges)} merges, limit {MAX_MERGES}")
    return merges


def _described(token: AddedEntry) -> dict[str, object]:
    match_rule = token.match_rule
    return {
        "id": token.token_id,
        "content": token.text,
        "special": token.is_special,
        "lstrip": match_rule.strips_left,
        "rstrip": match_rule.strips_right,
        "single_word": match_rule.is_whole_word,
        "normalized": match_rule.is_normalized,
    }


def _bytes_of(entry: JsonObject) -> bytes:
    text = entry.text("token_bytes")
    if not text:
        raise entry.fail("token_bytes", "missing or empty")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise entry.fail("token_bytes", "not base64") from error


def _spelled(piece: bytes) -> str:
    return "".join(map(BYTE_TO_CHAR.__getitem__, piece))


def _merges_of(rank_of: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, in the order of that token, then of the ranks of the pair."""
    merges, pieces = [], list(rank_of)
    for piece in pieces:
        cuts = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
        known = [(rank_of[left], rank_of[right]) for left, right in cuts if left in rank_of and right in rank_of]
        merges += [(_spelled(pieces[left]), _spelled(pieces[right])) for left, right in sorted(known)]
    return merges
