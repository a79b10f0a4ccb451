"""A session's outputs as text, which follows where the session is truncated or a token replaced."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.text import StreamMark, TextStream, Tokenizer


class SessionText:
    """Text of what was sampled since the last prefill. Not for use by two threads at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = TextStream(tokenizer.table)
        # Tokens held -> the stream's state when it had been fed just those of them that are outputs.
        self._marks: dict[int, StreamMark] = {}

    def copy(self, position: int) -> SessionText:
        """For a fork that shares `position` tokens."""
        twin = SessionText(self._tokenizer)
        if position in self._marks:
            twin._marks = {held: mark for held, mark in self._marks.items() if held <= position}
            twin._stream.rewind(self._marks[position])
        return twin

    def restart(self) -> None:
        """Forgets everything: a prefill begins a new stretch of outputs."""
        self._stream = TextStream(self._tokenizer.table)
        self._marks.clear()

    def truncate(self, position: int) -> None:
        """Forgets what follows the first `position` held tokens."""
        if position in self._marks:
            self._stream.rewind(self._marks[position])
            self._marks = {held: mark for held, mark in self._marks.items() if held <= position}
        else:
            self.restart()

    def replace_pending(self, held: int, tokens: Sequence[int]) -> None:
        """Takes back what was sampled after `held` tokens, and takes the caller's tokens in its place."""
        if held in self._marks:
            self._stream.rewind(self._marks[held])
        for i, token in enumerate(tokens):
            self._marks[held + i] = self._stream.mark()
            self._stream.feed(token)

    def sampled(self, held: int, token: int) -> str:
        """The text that a token sampled after `held` tokens completes."""
        self._marks[held] = self._stream.mark()
        return self._stream.feed(token).text
