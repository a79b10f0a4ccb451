"""The errors of imp_service.text. Each has a reason, a path and a message, for a status or an exit line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# The name of a file of a model directory, at the end or followed by the path of a value in it.
_FILE = re.compile(r"[\w./-]+\.(?:json|jinja|model|txt)(?:: |$)")


class TextError(Exception):
    """Base class. `path` is a metadata key if the model is at fault, and a proto field path if the caller is."""

    reason = "BUG"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message

    def in_file(self, name: str) -> None:
        """Adds the model's name to an error about a key of its file, or about a file of its directory."""
        if self.path.startswith("tokenizer.") or _FILE.match(self.path):
            self.path = f"{name}/{self.path}" if _FILE.match(self.path) else f"{name}: key {self.path}"
            self.args = (f"{self.path}: {self.message}",)


@contextmanager
def naming_file(name: str) -> Iterator[None]:
    """Adds the file's name to errors about keys of a model file."""
    try:
        yield
    except TextError as error:
        error.in_file(name)
        raise


class TokenizerInvalid(TextError):
    """The model file's tokenizer cannot be used."""

    reason = "TOKENIZER_INVALID"


class UnknownPreTokenizer(TokenizerInvalid):
    """`tokenizer.ggml.pre` names an unknown pre-tokenizer, and no override names another."""


class TemplateInvalid(TextError):
    """The model file's chat template cannot be compiled."""

    reason = "TEMPLATE_INVALID"


class TemplateFailed(TextError):
    """Rendering a chat failed or exceeded a limit."""

    reason = "TEMPLATE_FAILED"


class NoChatTemplate(TextError):
    """A chat prompt for a model that has no chat template."""

    reason = "NO_CHAT_TEMPLATE"


class FieldInvalid(TextError):
    """A field of a request has an invalid value."""

    reason = "FIELD_INVALID"


class TooManyTokens(Exception):
    """A text has more tokens than a limit. The caller raises its own error for this."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__(f"at least {n_tokens} tokens")
        # There may be more: encoding stopped here.
        self.n_tokens = n_tokens


class NativePanic(TextError):
    """A native library panicked. That is a bug, never the caller's fault. Only the one call fails."""

    reason = "BUG"


@contextmanager
def native_boundary(library: str) -> Iterator[None]:
    """Turns a panic of a Rust library into `NativePanic`.

    pyo3 raises a panic as a BaseException. Each extension has its own class for it, so only the name identifies it.
    Uncaught, it would end the thread.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise NativePanic(library, "the library panicked") from error
