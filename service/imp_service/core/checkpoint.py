"""Opens the checkpoint that the settings name, with advice if the path is a URL or a name in a registry."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from imp_service import _core
from imp_service.config import Config
from imp_service.config.toml import excerpt
from imp_service.core.errors import ModelError, make_error
from imp_service.core.weights import sha256_of
from imp_service.models import demo_model_path

_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]+)://(.*)")
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# As huggingface.co/OWNER/NAME, perhaps with /blob/REVISION/FILE or :TYPE after it, or hf://OWNER/NAME.
_HUB = r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)|hf:/)"
_HUB_URL = re.compile(rf"(?i){_HUB}/({_WORD}/{_WORD})(?:/(?:resolve|blob|tree)/([^/?#]+)(?:/([^?#]+))?|:([^/?#]+))?.*")
_MAIN = "main"
_REPOSITORY = re.compile(rf"({_WORD}/{_WORD})(:{_WORD})?")
_NAME = re.compile(rf"{_WORD}(?:/{_WORD})?(?::{_WORD})?")
_TAGGED = re.compile(rf"{_WORD}(?:/{_WORD})*:{_WORD}")
# No repository has a longer name.
_LONGEST_NAME = 96
_PULL = "imp ls lists the downloaded models, and imp pull OWNER/NAME:TYPE downloads one"
_ENDINGS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".onnx")


class HubAddress(NamedTuple):
    """What an address of Hugging Face names."""

    repository: str
    wanted: str | None  # a file or a type
    revision: str | None  # None: the main one


def read_hub_address(typed: str) -> HubAddress | None:
    """None for anything but an address of a repository."""
    found = _HUB_URL.fullmatch(typed)
    if found is None:
        return None
    repository, revision, file, wanted = found.groups()
    return HubAddress(repository, file or wanted, None if revision == _MAIN else revision)


def model_path(config: Config) -> Path:
    """The checkpoint that the settings name, or the built-in one."""
    path = config.settings.model.path
    return demo_model_path() if path is None else Path(path)


def open_file(config: Config) -> _core.ModelFile:
    """Opens the checkpoint. If the settings have its digest, compares the two."""
    path, file = model_path(config), open_checkpoint(config)
    expected = config.settings.model.sha256
    if expected is not None:
        found = sha256_of(file.files)
        if found != expected:
            raise make_error("WEIGHTS_CORRUPT", f"{path.name}: sha256 {found}, expected {expected}")
    return file


def open_checkpoint(config: Config) -> _core.ModelFile:
    """The same without comparing the digest, which takes reading the whole file."""
    path = model_path(config)
    with naming_whole_path(config.settings.model.path or str(path)):
        return _core.open_model_file(path)


@contextmanager
def naming_whole_path(typed: str) -> Iterator[None]:
    """Adds the whole path to the errors of a file that does not open, with advice."""
    try:
        yield
    except ModelError as error:
        if error.reason in ("MODEL_MISSING", "MODEL_PERMISSION"):
            _add_advice(error, typed)
        raise


def _add_advice(error: ModelError, typed: str) -> None:
    """Puts the whole path into the message, with advice if it is not the path of a file.

    The core's messages do not contain folders, because anybody may read them. The caller may see its own path.
    """
    name, n_bytes = Path(typed).name, 200
    if error.reason == "MODEL_MISSING" and (advice := advice_on(typed)) is not None:
        error.message = f"{excerpt(typed, n_bytes, keep='end')}: {advice}"
    elif error.message.startswith(f"{name}: "):
        error.message = excerpt(typed, n_bytes, keep="end") + error.message.removeprefix(name)
    error.args = (f"{error.reason}: {error.message}",)


def advice_on(typed: str) -> str | None:
    """Advice for a path that does not exist and looks like a URL or a name in a registry; None for others."""
    if found := read_hub_address(typed):
        return f"is a URL, expected a file or a folder; to download it: {_download(found.repository, found.wanted)}"
    if _URL.fullmatch(typed):
        return "is a URL, expected a file or a folder; download it first, then name the file"
    if typed.startswith("~"):
        return "No such file or directory; only a shell replaces ~, expected the whole path"
    return None if typed.endswith(_ENDINGS) else _advice_on_name(typed)


def may_name_model(typed: str) -> bool:
    """Whether the word has the form of a model's name, such as NAME, OWNER/NAME or NAME:TYPE."""
    return not typed.endswith(_ENDINGS) and _NAME.fullmatch(typed) is not None


def _advice_on_name(typed: str) -> str | None:
    found = _REPOSITORY.fullmatch(typed)
    if found is not None and not Path(typed).parent.exists():
        return f"is not a file or folder; if it is a repository on Hugging Face: {_download(found[1])}"
    if _TAGGED.fullmatch(typed):
        return f"is a name with a tag, expected a file, a folder or a downloaded model; {_PULL}"
    if re.fullmatch(_WORD, typed) and len(typed) <= _LONGEST_NAME and not os.path.lexists(typed):
        return f"is no file, no folder, no downloaded model and no name of [models]; {_PULL}"
    return None


def _download(repository: str, file: str | None = None) -> str:
    named = repository if file is None else f"{repository}:{file}"
    return f"imp pull {named}, or write hf:{named} in its place"
