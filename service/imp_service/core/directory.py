"""The files of a model directory that hold no weights: its tokenizer, its chat templates."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from imp_service import _core
from imp_service.core.errors import make_error
from imp_service.core.file_text import shown_text

MIB = 1 << 20
# The text side refuses what is longer.
_MOST_VOCABULARY_BYTES = 128 * MIB
_MOST_BYTES = 4 * MIB
# The first of these files that there is has the vocabulary: the others are as large, and would not be used.
_VOCABULARIES = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("tekken.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_TEMPLATES = "additional_chat_templates"
_MOST_TEMPLATES = 64


def metadata_of(file: _core.ModelFile) -> Mapping[str, object]:
    """The metadata of a model. That of a directory includes the content of its text files, by their names."""
    metadata: Mapping[str, object] = file.metadata
    return metadata if file.format != "safetensors" else {**metadata, **read_texts(Path(file.path).parent)}


def read_texts(folder: Path) -> dict[str, bytes]:
    """The files of a folder that say how its model reads and writes text; each up to one byte beyond its limit."""
    found = {name: _read(folder, name, _MOST_BYTES) for name in [*_FILES, *_template_names(folder)]}
    for names in _VOCABULARIES:
        vocabulary = {name: _read(folder, name, _MOST_VOCABULARY_BYTES) for name in names}
        if None not in vocabulary.values():
            found |= vocabulary
            break
    return {name: content for name, content in found.items() if content is not None}


# The end of a name of one of several files of a model.
_PART = re.compile(r"-\d{5}-of-\d{5}$")


def name_of(file: _core.ModelFile) -> str:
    """Returns the name of a model without a name in its metadata: that of its file or directory."""
    return shown_text(_stem(Path(file.path), file.format)) or "model"


def _stem(path: Path, file_format: str) -> str:
    if file_format != "safetensors" or not path.stem.startswith("model"):
        return _PART.sub("", path.stem)
    folder = path.absolute().parent
    # The cache of a hub: models--OWNER--NAME/snapshots/REVISION.
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2]
    return folder.name or path.stem


def shown_name(path: Path) -> str:
    """How messages name a model: by its file, or by its directory."""
    is_in_directory = path.suffix in (".safetensors", ".json") and not _is_directory(path)
    return shown_text(path.absolute().parent.name if is_in_directory else path.name)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long: opening the file is what reports it
        return False


def _template_names(folder: Path) -> list[str]:
    try:
        names = sorted(path.name for path in (folder / _TEMPLATES).iterdir() if path.suffix == ".jinja")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise make_error("MODEL_PERMISSION", f"{_TEMPLATES}: {error.strerror}") from None
    return [f"{_TEMPLATES}/{name}" for name in names[:_MOST_TEMPLATES]]


def _read(folder: Path, name: str, most_bytes: int) -> bytes | None:
    """None if there is no such file. A link to a file that is missing is an error: a download is not complete."""
    path = folder / name
    try:
        # A FIFO must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if path.is_symlink():
            raise make_error("MODEL_MISSING", f"{name}: a link to a file that does not exist") from None
        return None
    except OSError as error:
        raise make_error("MODEL_PERMISSION", f"{name}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as content:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise make_error("MODEL_MISSING", f"{name}: is no regular file")
        try:
            return content.read(most_bytes + 1)
        except OSError as error:
            raise make_error("MODEL_IO", f"{name}: {error.strerror}") from None
