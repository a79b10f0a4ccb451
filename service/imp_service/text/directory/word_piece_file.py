"""Makes a tokenizer.json of vocab.txt, the file of BERT's first models: one WordPiece a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from imp_service.text.directory.json_files import MAX_TOKENIZER_BYTES, JsonObject
from imp_service.text.directory.special_names import SpecialNames
from imp_service.text.errors import TokenizerInvalid

WORD_FILE = "vocab.txt"
# The roles of BERT's special tokens, where the configuration names none.
_ROLES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def of_word_list(files: Mapping[str, bytes], names: SpecialNames) -> tuple[JsonObject, dict[str, str]]:
    """Returns the roles of special tokens too."""
    ids = {line: i for i, line in enumerate(_lines(files[WORD_FILE]))}
    roles = {**_ROLES, **names.spelled}
    for role in ("unk_token", "cls_token", "sep_token"):
        if roles[role] not in ids:
            raise TokenizerInvalid(WORD_FILE, f"{roles[role]!r:.40}, the {role}, is missing")
    strips_accents = names.config.members.get("strip_accents")
    document = {
        "version": "1.0",
        "added_tokens": _added(ids, roles.values()),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": names.config.flag("tokenize_chinese_chars", True),
            "strip_accents": None if strips_accents is None else names.config.flag("strip_accents"),
            "lowercase": names.config.flag("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": [roles["sep_token"], ids[roles["sep_token"]]],
            "cls": [roles["cls_token"], ids[roles["cls_token"]]],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": roles["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    return JsonObject(WORD_FILE, document), {role: text for role, text in roles.items() if text in ids}


def _lines(content: bytes) -> list[str]:
    if len(content) > MAX_TOKENIZER_BYTES:
        raise TokenizerInvalid(WORD_FILE, f"more than {MAX_TOKENIZER_BYTES} bytes")
    try:
        lines = [line.removesuffix("\r") for line in content.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise TokenizerInvalid(WORD_FILE, "not UTF-8") from error
    if len(set(lines)) < len(lines):
        raise TokenizerInvalid(WORD_FILE, "a token twice")
    return lines


def _added(ids: Mapping[str, int], special: Iterable[str]) -> list[dict[str, Any]]:
    found = {ids[text]: text for text in special if text in ids}
    return [{"id": i, "content": found[i], "special": True, "normalized": False} for i in sorted(found)]
