"""Builds the tokenizer of a model directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from imp_service.text.directory.json_backend import build_backends
from imp_service.text.directory.special_names import SpecialNames, read_special_names
from imp_service.text.directory.tokenizer_json import FILE, read_tokenizer_json, vocabulary_of
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.backends import Backends
from imp_service.text.tokens.vocabulary import Vocabulary


def read_directory(
    metadata: Mapping[str, object],
    *,
    n_rows: int | None,
    end_ids: Sequence[int] | None,
) -> tuple[Vocabulary, Backends, SpecialNames]:
    """Vocabulary and library objects of a directory. `metadata` is that of config.json, with the content of files."""
    files = {name: content for name, content in metadata.items() if isinstance(content, bytes)}
    if FILE not in files:
        raise TokenizerInvalid(FILE, "missing: imp reads a directory's text with it")
    names = read_special_names(files)
    document = read_tokenizer_json(files[FILE])
    vocabulary = vocabulary_of(document, names, metadata, n_rows=n_rows, end_ids=end_ids)
    return vocabulary, replace(build_backends(document, vocabulary), document=files[FILE]), names
