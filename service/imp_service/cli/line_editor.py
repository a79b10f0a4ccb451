"""Reads messages on a terminal: with line editing, over several lines, and with a history."""

import sys
from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output

from imp_service.cli.conversation.commands import COMMANDS
from imp_service.cli.failure import CommandError, error_line
from imp_service.cli.options.sampling import number_names
from imp_service.cli.terminal import decode, variable
from imp_service.cli.typed_history import open_history

PROMPT = "> "
CONTINUED = ". "
ENDS = "Ctrl-C again ends; so do /exit and Ctrl-D."


class LineEditor:
    def __init__(self, *, keeps_history: bool) -> None:
        output = Vt100_Output.from_pty(sys.stdout, term=variable("TERM") or None)
        # A terminal that does not report its cursor's position would cause a warning; the prompt needs no report.
        output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            history=open_history() if keeps_history else InMemoryHistory(),
            multiline=True,
            prompt_continuation=CONTINUED,
            key_bindings=_keys(),
            completer=_CommandCompleter(),
            complete_while_typing=False,
            enable_suspend=True,
            output=output,
        )

    def messages(self) -> Iterator[str]:
        """Yields the non-empty messages that the user types, until Ctrl-D, or Ctrl-C twice."""
        was_asked = False
        while True:
            try:
                text = self._read()
            except EOFError:
                return
            except KeyboardInterrupt:
                if was_asked:
                    raise
                was_asked = True
                print(ENDS, file=sys.stderr, flush=True)
                continue
            was_asked = False
            if text.strip():
                yield text

    def edit(self, text: str) -> str | None:
        """The text as the user changes it; None after Ctrl-C or Ctrl-D."""
        try:
            return self._read(text)
        except (EOFError, KeyboardInterrupt):
            return None

    def _read(self, text: str = "") -> str:
        while True:
            typed = self._session.prompt(PROMPT, default=text)
            try:
                # Bytes that the terminal's encoding does not have arrive as surrogates.
                return decode(typed.encode("utf-8", "surrogateescape"), "the message")
            except CommandError as error:
                print(error_line(error.reason, error.message), file=sys.stderr, flush=True)


def _keys() -> KeyBindings:
    """Enter sends the message. Alt+Enter, and Enter after a backslash, begin a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _CommandCompleter(Completer):
    """Tab completes a command, and the name of an option after /set."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        head, _, word = typed.rpartition(" ")
        names = {"": COMMANDS, "/set": number_names()}.get(head, ())
        if typed.startswith("/"):
            yield from (Completion(name, -len(word)) for name in names if name.startswith(word))
