"""Advice for a model path that is a URL, or a name in a registry or a repository, instead of a file."""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]+)://(.*)")
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# As huggingface.co/OWNER/NAME, perhaps with /blob/main/FILE after it, or hf://OWNER/NAME.
_HUB = r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)|hf:/)"
_HUB_URL = re.compile(rf"(?i){_HUB}/({_WORD}/{_WORD})(?:/(?:resolve|blob)/[^/]+/([^?#]+))?.*")
_REPOSITORY = re.compile(rf"({_WORD}/{_WORD})(:{_WORD})?")
_TAGGED = re.compile(rf"{_WORD}(?:/{_WORD})*:{_WORD}")
_ENDINGS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".onnx")


def advice_on(typed: str) -> str | None:
    """The rest of the error line for a path that does not exist; None where it may well have been meant as a path."""
    if found := _HUB_URL.fullmatch(typed):
        return f"is a URL, expected a file or a folder; to download it: {_download(found[1], found[2])}"
    if _URL.fullmatch(typed):
        return "is a URL, expected a file or a folder; download it first, then name the file"
    if typed.startswith("~"):
        return "No such file or directory; only a shell replaces ~, expected the whole path"
    return None if typed.endswith(_ENDINGS) else _advice_on_name(typed)


def _advice_on_name(typed: str) -> str | None:
    found = _REPOSITORY.fullmatch(typed)
    if found is not None and not Path(typed).parent.exists():
        return f"is no file or folder; if it is a repository on Hugging Face: {_download(found[1])}"
    if _TAGGED.fullmatch(typed):
        return "is a name with a tag, expected a file or a folder; to download one: hf download OWNER/NAME FILE.gguf"
    return None


def _download(repository: str, file: str | None = None) -> str:
    if file is not None:
        return f"hf download {repository} {file} --local-dir ., then -m {file}"
    folder = repository.rpartition("/")[2]
    return f"hf download {repository} --local-dir {folder}, then -m {folder}"
