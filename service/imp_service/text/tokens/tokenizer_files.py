"""A model's tokenizer as the files that other programs read: tokenizer.json, its configuration, the chat template."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import decoders

from imp_service.text.errors import native_boundary
from imp_service.text.tokens.added_tokens import AS_SPELLED, library_token
from imp_service.text.tokens.backends import Backends
from imp_service.text.tokens.library_tokenizer import build_backend, placeholder
from imp_service.text.tokens.piece_types import SPACE_MARK, TokenType, VocabularyKind
from imp_service.text.tokens.vocabulary import Vocabulary

# Its SHA-256 is ModelInfo.tokenizer_sha256.
VOCABULARY_FILE = "vocabulary.bin"
# The format has no earlier date; any other would make two archives of one tokenizer differ.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def tokenizer_archive(vocabulary: Vocabulary, backends: Backends, chat_template: str | None) -> bytes:
    """A zip with the same bytes for the same tokenizer: not compressed, because compressors differ between machines."""
    described = backends.document
    is_like_first = not (backends.is_sentencepiece and vocabulary.adds_space_prefix)
    library = backends.library if is_like_first else lambda: build_backend(vocabulary)
    files = {
        "tokenizer.json": (
            tokenizer_json(vocabulary, library()) if described is None else amended(described, vocabulary)
        ).encode(),
        "tokenizer_config.json": tokenizer_config_json(vocabulary, chat_template).encode(),
        VOCABULARY_FILE: vocabulary.table(),
    }
    if chat_template is not None:
        files["chat_template.jinja"] = chat_template.encode()
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _NO_DATE)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return out.getvalue()


def tokenizer_json(vocabulary: Vocabulary, backend: Library) -> str:
    """A file for the `tokenizers` library. The result encodes text as imp does with special tokens parsed and added."""
    with native_boundary("tokenizers"):
        described = json.loads(backend.to_str())
        spellings = _spellings(vocabulary, described["model"]["vocab"])
        _spell_out(described["model"], spellings)
        described["post_processor"] = _post_processor(vocabulary, spellings)
        library = Library.from_str(json.dumps(described))
        read_in_texts = (TokenType.CONTROL, TokenType.UNKNOWN)
        library.add_special_tokens(
            [
                library_token(text, vocabulary.match_rules.get(token_id, AS_SPELLED), special=True)
                for token_id, text in spellings.items()
                if vocabulary.types[token_id] in read_in_texts
            ]
        )
        library.decoder = _decoder(vocabulary)
        return str(library.to_str())


def amended(document: bytes, vocabulary: Vocabulary) -> str:
    """Returns the model's tokenizer.json with the tokens that imp adds, and without a post-processor of its own."""
    described = json.loads(document)
    kept = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    spellings = {i: vocabulary.pieces[i].decode() for i in np.isin(vocabulary.types, kept).nonzero()[0].tolist()}
    described["added_tokens"] = [_described_token(i, text, vocabulary) for i, text in spellings.items()]
    described["post_processor"] = _post_processor(vocabulary, spellings)
    described["truncation"] = described["padding"] = None
    return json.dumps(described, ensure_ascii=False)


def _described_token(token_id: int, text: str, vocabulary: Vocabulary) -> dict[str, object]:
    match_rule = vocabulary.match_rules.get(token_id, AS_SPELLED)
    return {
        "id": token_id,
        "content": text,
        "single_word": match_rule.is_whole_word,
        "lstrip": match_rule.strips_left,
        "rstrip": match_rule.strips_right,
        "normalized": match_rule.is_normalized,
        "special": bool(vocabulary.types[token_id] != TokenType.USER_DEFINED),
    }


def tokenizer_config_json(vocabulary: Vocabulary, chat_template: str | None) -> str:
    """The configuration for rendering conversations."""
    special = vocabulary.special
    ids = {"bos_token": special.bos, "eos_token": special.eos, "unk_token": special.unknown}
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": special.bos in vocabulary.before,
        "add_eos_token": special.eos in vocabulary.after,
        "clean_up_tokenization_spaces": False,
    }
    for name, token_id in ids.items():
        if token_id is not None:
            config[name] = vocabulary.token_bytes[token_id].decode("utf-8", "replace")
    if chat_template is not None:
        config["chat_template"] = chat_template
    return json.dumps(config, ensure_ascii=False, indent=2) + "\n"


def _spellings(vocabulary: Vocabulary, names: Any) -> dict[int, str]:
    """The spellings of special tokens. One that is spelled like another token keeps a name that no text contains."""
    taken = {entry if isinstance(entry, str) else entry[0] for entry in names}
    spellings: dict[int, str] = {}
    for token_id in sorted(vocabulary.special_ids()):
        text = vocabulary.token_bytes[token_id].decode("utf-8", "replace")
        if text and text not in taken:
            taken.add(text)
            spellings[token_id] = text
    return spellings


def _spell_out(model: dict[str, Any], spellings: dict[int, str]) -> None:
    """Names special tokens in the library's own description of a model."""
    names = {placeholder(token_id): text for token_id, text in spellings.items()}
    vocab = model["vocab"]
    if isinstance(vocab, list):
        model["vocab"] = [[names.get(name, name), score] for name, score in vocab]
    else:
        model["vocab"] = {names.get(name, name): token_id for name, token_id in vocab.items()}
    unknown = model.get("unk_token")
    if unknown in names:
        model["unk_token"] = names[unknown]


def _post_processor(vocabulary: Vocabulary, spellings: dict[int, str]) -> dict[str, Any] | None:
    """Adds the vocabulary's begin and end tokens to a text."""
    added = (*vocabulary.before, *vocabulary.after)
    if not added:
        return None
    names = {token_id: spellings.get(token_id, placeholder(token_id)) for token_id in added}

    def tokens(ids: tuple[int, ...], type_id: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": names[i], "type_id": type_id}} for i in ids]

    def around(sequence: str, type_id: int) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*tokens(vocabulary.before, type_id), text, *tokens(vocabulary.after, type_id)]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in names.items()},
    }


def _decoder(vocabulary: Vocabulary) -> Any:
    """Converts names of tokens to text."""
    match vocabulary.kind:
        case VocabularyKind.BYTE_LEVEL:
            return decoders.ByteLevel()
        case VocabularyKind.WORD_PIECE:
            return decoders.WordPiece()
        case VocabularyKind.UNIGRAM:
            scheme = "always" if vocabulary.adds_space_prefix else "never"
            return decoders.Metaspace(SPACE_MARK, prepend_scheme=scheme)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if vocabulary.adds_space_prefix else steps)
