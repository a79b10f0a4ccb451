"""The text of a session's outputs. It follows when the session is truncated or a token is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.text import StreamMark, TextStream, Tokenizer


class SessionText:
    """The text of what was sampled since the last prefill. For one thread at a time.

    A session may be truncated to any position. The stream's state is kept only for positions at which part of a
    character waits: at all others it is the same.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = TextStream(tokenizer.table)
        # The positions of outputs.
        self._positions = range(0)
        # Position -> the stream's state there, if part of a character waits.
        self._marks: dict[int, StreamMark] = {}
        # The state at every other position.
        self._settled: StreamMark | None = None

    @property
    def n_marks(self) -> int:
        """The number of positions whose state is kept."""
        return len(self._marks)

    def copy(self, position: int, *, shares_all: bool = False) -> SessionText:
        """The text of a fork that shares `position` tokens, or all of them and the pending one."""
        twin = SessionText(self._tokenizer)
        if shares_all:
            twin._positions, twin._marks, twin._settled = self._positions, dict(self._marks), self._settled
            twin._stream.rewind(self._stream.mark())
            return twin
        mark = self._mark_at(position)
        if mark is not None:
            twin._positions = self._positions
            twin._marks = self._marks
            twin._settled = self._settled
            twin._back_to(position, mark)
        return twin

    def restart(self) -> None:
        """Forgets everything, as a prefill begins a new text."""
        self._stream = TextStream(self._tokenizer.table)
        self._positions = range(0)
        self._marks = {}
        self._settled = None

    def truncate(self, position: int) -> None:
        """Forgets what follows the first `position` held tokens."""
        mark = self._mark_at(position)
        if mark is None:
            self.restart()
        else:
            self._back_to(position, mark)

    def replace_pending(self, held: int, tokens: Sequence[int]) -> None:
        """Replaces what was sampled after `held` tokens by the caller's tokens."""
        mark = self._mark_at(held)
        if mark is not None:
            self._stream.rewind(mark)
        for i, token in enumerate(tokens):
            self._feed(held + i, token)

    def sampled(self, held: int, token: int) -> str:
        """The text that a token sampled after `held` tokens completes."""
        return self._feed(held, token)

    def _feed(self, held: int, token: int) -> str:
        mark = self._stream.mark()
        if mark.is_settled:
            self._settled = mark
        else:
            self._marks[held] = mark
        first = self._positions.start if self._positions else held
        self._positions = range(first, held + 1)
        return self._stream.feed(token).text

    def _mark_at(self, held: int) -> StreamMark | None:
        if held not in self._positions:
            return None
        return self._marks.get(held, self._settled)

    def _back_to(self, position: int, mark: StreamMark) -> None:
        self._stream.rewind(mark)
        self._positions = range(self._positions.start, position + 1)
        self._marks = {held: each for held, each in self._marks.items() if held <= position}
