"""What a person types in a conversation, or pipes into one: a line, or lines that are pasted at once, is a message."""

import sys
from collections.abc import Iterator

PROMPT = "> "
HINT = "/quit or Ctrl-D ends, Ctrl-C stops an answer, /help shows more."
ENDS = "Ctrl-C again ends, so do /quit and Ctrl-D."


def typed_messages() -> Iterator[str]:
    """Without empty ones, until the end of the input."""
    for text in _typed() if is_interactive() else _piped():
        if text.strip():
            yield text


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed() -> Iterator[str]:
    from imp_service.cli.terminal import decode

    _prepare_editing()
    was_asked = False
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            if was_asked:
                raise
            was_asked = True
            print(ENDS, file=sys.stderr, flush=True)
            continue
        was_asked = False
        yield decode(text.encode("utf-8", "surrogateescape"), "stdin")


def _prepare_editing() -> None:
    """Editing, history within the process, and pasted lines as one text: `input` has them once this is imported."""
    import readline

    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off


def _piped() -> Iterator[str]:
    from imp_service.cli.terminal import decode

    for content in iter(sys.stdin.buffer.readline, b""):
        yield decode(content, "stdin").rstrip("\r\n")
