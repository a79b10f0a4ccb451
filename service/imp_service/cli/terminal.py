"""Text between people and models: prompts and messages as UTF-8, and answers that cannot control a terminal."""

import codecs
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Protocol, TextIO

from imp_service.cli.failure import CommandError

# The text of a model may hold escape sequences that control a terminal. Tabs and line ends stay.
VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


class TextWriter(Protocol):
    """Writes a model's text as it comes."""

    def write(self, text: str) -> None: ...

    def end_line(self) -> None:
        """Ends the line, unless it has ended."""


class AnswerWriter:
    """Writes a model's text as it comes: unchanged into a pipe, without control characters to a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._last = ""
        reconfigure = getattr(self._stream, "reconfigure", None)
        if reconfigure is not None:
            # A pipe gets UTF-8 whatever the locale; a terminal replaces what it cannot show.
            reconfigure(errors="replace") if self._is_terminal else reconfigure(encoding="utf-8")

    def write(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        self._stream.write(text.translate(VISIBLE) if self._is_terminal else text)
        self._stream.flush()

    def end_line(self) -> None:
        """Ends the line, unless it has ended."""
        if self._last != "\n":
            self.write("\n")
        self._last = ""


def read_prompt(word: str) -> str:
    """The argument itself, or stdin for `-`, without the line end that `echo` adds."""
    if word == "-":
        return decode(sys.stdin.buffer.read(), "stdin").removesuffix("\n").removesuffix("\r")
    # Arguments that are not UTF-8 arrive with surrogates in them.
    return decode(word.encode("utf-8", "surrogateescape"), "PROMPT")


def join_prompt(words: Sequence[str]) -> str:
    """Joins the words to one prompt for a server. Raises an error for a model file, which no server is asked for."""
    for word in words:
        if word.endswith(".gguf") and (len(words) == 1 or Path(word).is_file()):
            raise CommandError("USAGE", f"PROMPT: {word} is a model file, and this asks a server; use imp run {word}")
    return " ".join(words)


def is_prompt_shown(word: str) -> bool:
    """A terminal shows the prompt before the answer; a pipe gets the answer only."""
    return word != "-" and sys.stdout.isatty() and sys.stderr.isatty()


def decode(content: bytes, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError("FIELD_INVALID", f"{what}: byte {error.start} is not UTF-8, expected UTF-8 text") from None


HINT = "/exit or Ctrl-D ends, Ctrl-C stops an answer, /help shows more."


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def piped_messages() -> Iterator[str]:
    """The lines of stdin, without empty ones."""
    for content in iter(sys.stdin.buffer.readline, b""):
        text = decode(content, "stdin").rstrip("\r\n")
        if text.strip():
            yield text


def print_note(text: str) -> None:
    """Prints a line to stderr, broken between words on a terminal."""
    print(_wrapped(text), file=sys.stderr, flush=True)


def _wrapped(text: str) -> str:
    if not sys.stderr.isatty():
        return text
    width = get_terminal_size().columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def print_dim(text: str) -> None:
    """Prints a less important line to stderr, dimmed."""
    text = _wrapped(text)
    print(f"\x1b[2m{text}\x1b[0m" if _has_styles(sys.stderr) else text, file=sys.stderr, flush=True)


def answer_writer(*, plain: bool) -> TextWriter:
    """Renders Markdown on a terminal that can show it; anything else gets the text."""
    is_utf_8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    if plain or not (is_utf_8 and sys.stdout.isatty()) or variable("TERM") == "dumb":
        return AnswerWriter()
    from imp_service.cli.markdown import MarkdownWriter

    return MarkdownWriter(sys.stdout)


def _has_styles(stream: TextIO) -> bool:
    return stream.isatty() and not variable("NO_COLOR") and variable("TERM") != "dumb"


def variable(name: str) -> str:
    """A variable that describes the terminal or its user's folders. Empty if it is not set."""
    return os.environ.get(name, "")
