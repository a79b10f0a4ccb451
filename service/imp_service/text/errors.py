"""The text layer's errors: each carries the reason, path and message that a reply or an exit line is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TextError(Exception):
    """Base of the room's errors.

    `path` is a metadata key for a model's fault and a proto field path for a caller's.
    """

    reason = "BUG"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message

    def in_file(self, name: str) -> None:
        """Adds the file's name to an error about a key of a model file."""
        if self.path.startswith("tokenizer."):
            self.path = f"{name}: key {self.path}"
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
    """`tokenizer.ggml.pre` names no known way of cutting text into words, and none was named by the caller."""


class TemplateInvalid(TextError):
    """The model file's chat template cannot be compiled."""

    reason = "TEMPLATE_INVALID"


class TemplateFailed(TextError):
    """Rendering a chat raised, or went beyond a limit."""

    reason = "TEMPLATE_FAILED"


class NoChatTemplate(TextError):
    """A chat prompt for a model that has no chat template."""

    reason = "NO_CHAT_TEMPLATE"


class FieldInvalid(TextError):
    """A field of a request has a value it may not have."""

    reason = "FIELD_INVALID"


class TooManyTokens(Exception):
    """A text has more tokens than the caller's limit; the caller turns this into its own error."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__(f"at least {n_tokens} tokens")
        # There may be more: encoding stopped here.
        self.n_tokens = n_tokens


class NativePanic(TextError):
    """A native library panicked: our bug or its, never the caller's; only that call fails."""

    reason = "BUG"


@contextmanager
def native_boundary(library: str) -> Iterator[None]:
    """Turns a panic of a Rust library into `NativePanic`.

    pyo3 raises panics as a BaseException whose class each extension makes for itself, so that it can only be told by
    its name; letting it pass would end the thread it reaches.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise NativePanic(library, "the library panicked") from error
