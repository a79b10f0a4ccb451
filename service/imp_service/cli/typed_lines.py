"""What a person types in a conversation, or pipes into one: a line is a turn."""

import sys
from collections.abc import Iterator

QUIT = "/quit"
PROMPT = "> "
HINT = f"{QUIT} or Ctrl-D ends, Ctrl-C stops an answer."


def typed_lines() -> Iterator[str]:
    """The turns, without empty ones, until QUIT or the end of the input."""
    for line in _lines():
        if line.strip() == QUIT:
            return
        if line.strip():
            yield line


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _lines() -> Iterator[str]:
    from imp_service.cli.terminal import decode

    if is_interactive():
        import readline  # noqa: F401  (editing and history within the process: `input` uses it where it is imported)

        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                print(file=sys.stderr)
                return
            yield decode(line.encode("utf-8", "surrogateescape"), "stdin")
    for content in iter(sys.stdin.buffer.readline, b""):
        yield decode(content, "stdin").rstrip("\r\n")
