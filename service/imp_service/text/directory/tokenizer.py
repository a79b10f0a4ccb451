"""Builds the tokenizer of a model directory, from the first of its files that imp reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from imp_service.text.directory import byte_level_files, tokenizer_json, word_piece_file
from imp_service.text.directory.json_backend import build_backends
from imp_service.text.directory.json_files import JsonObject
from imp_service.text.directory.special_names import SpecialNames, read_special_names
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.backends import Backends, library_boundary
from imp_service.text.tokens.encoders import LibraryEncoder
from imp_service.text.tokens.library_tokenizer import build_backend
from imp_service.text.tokens.metadata import PREFIX
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.tokens.splitter import Splitter
from imp_service.text.tokens.vocabulary import PRE_OVERRIDE, Vocabulary, read_vocabulary

SENTENCEPIECE_FILE = "tokenizer.model"


def read_directory(
    metadata: Mapping[str, object], *, n_rows: int | None, pre: str | None, end_ids: Sequence[int] | None
) -> tuple[Vocabulary, Backends, Mapping[str, str]]:
    """Vocabulary, library objects, and the spellings of special tokens by their roles.

    `metadata` is that of config.json, with the content of files. `pre` names the rule for words, if the settings do.
    """
    files = {name: content for name, content in metadata.items() if isinstance(content, bytes)}
    names = read_special_names(files)
    if tokenizer_json.FILE in files:
        _refuse_rule(tokenizer_json.FILE, pre)
        content = files[tokenizer_json.FILE]
        document = tokenizer_json.read_tokenizer_json(content)
    elif SENTENCEPIECE_FILE in files:
        _refuse_rule(SENTENCEPIECE_FILE, pre)
        return _of_sentencepiece(files, names, metadata, n_rows, end_ids)
    elif byte_level_files.TEKKEN_FILE in files:
        _refuse_rule(byte_level_files.TEKKEN_FILE, pre)
        document, roles = byte_level_files.of_tekken(files)
        names, content = replace(names, spelled={**roles, **names.spelled}), b""
    elif byte_level_files.VOCAB_FILE in files and byte_level_files.MERGES_FILE in files:
        document, content = byte_level_files.of_vocab_and_merges(files, names, pre), b""
    elif word_piece_file.WORD_FILE in files:
        _refuse_rule(word_piece_file.WORD_FILE, pre)
        document, roles = word_piece_file.of_word_list(files, names)
        names, content = replace(names, spelled=roles), b""
    else:
        known = "tokenizer.json, tokenizer.model, tekken.json, vocab.json with merges.txt, or vocab.txt"
        raise TokenizerInvalid(tokenizer_json.FILE, f"missing: imp reads a directory's text with one of {known}")
    vocabulary = tokenizer_json.vocabulary_of(document, names, metadata, n_rows=n_rows, end_ids=end_ids)
    backends = build_backends(document, vocabulary)
    return vocabulary, replace(backends, document=content or _written(document)), names.spelled


def _written(document: JsonObject) -> bytes:
    return json.dumps(document.members, ensure_ascii=False).encode()


def _refuse_rule(file: str, pre: str | None) -> None:
    if pre is not None:
        raise TokenizerInvalid(PRE_OVERRIDE, f"{file} states how words are cut, expected none")


def _of_sentencepiece(
    files: Mapping[str, bytes],
    names: SpecialNames,
    metadata: Mapping[str, object],
    n_rows: int | None,
    end_ids: Sequence[int] | None,
) -> tuple[Vocabulary, Backends, Mapping[str, str]]:
    # Only these vocabularies need the library of protobuf messages.
    from imp_service.text.directory.sentencepiece_model import keys_of_model

    keys = keys_of_model(files[SENTENCEPIECE_FILE], files, names, metadata, n_rows)
    try:
        of_keys = read_vocabulary({**metadata, **keys}, end_ids=end_ids)
        vocabulary = replace(of_keys, place=SENTENCEPIECE_FILE, strips_white_space=False)
        with library_boundary(SENTENCEPIECE_FILE):
            library = build_backend(vocabulary, as_sentencepiece=True)
            encoder = LibraryEncoder(library)
            splitter = Splitter(vocabulary, types=(TokenType.CONTROL, TokenType.UNKNOWN))
            backends = Backends(encoder, encoder, splitter, lambda: library, is_sentencepiece=True)
    except TokenizerInvalid as error:
        place = error.path.replace(PREFIX, f"{SENTENCEPIECE_FILE}: ")
        raise TokenizerInvalid(place, error.message) from error
    spelled = {
        f"{role}_token": vocabulary.token_bytes[token_id].decode("utf-8", "replace")
        for role, token_id in (
            ("bos", vocabulary.special.bos),
            ("eos", vocabulary.special.eos),
            ("unk", vocabulary.special.unknown),
        )
        if token_id is not None
    }
    return vocabulary, backends, {**spelled, **names.spelled}
