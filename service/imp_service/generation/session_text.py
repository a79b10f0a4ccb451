"""A session's outputs as text, which follows where the session is truncated or a token replaced."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.text import StreamMark, TextStream, Tokenizer


class SessionText:
    """Text of what was sampled since the last prefill. Not for use by two threads at once.

    A session may be truncated to any position, and may have come a long way: states of the stream are kept only for
    positions at which something waits, as one is like the other where nothing does.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = TextStream(tokenizer.table)
        # Tokens held, from the first output on, without a gap.
        self._positions = range(0)
        # Tokens held -> the stream's state when it had been fed just those of them that are outputs.
        self._marks: dict[int, StreamMark] = {}
        # At every other position.
        self._settled: StreamMark | None = None

    @property
    def n_marks(self) -> int:
        """Positions at which something waits."""
        return len(self._marks)

    def copy(self, position: int) -> SessionText:
        """For a fork that shares `position` tokens."""
        twin = SessionText(self._tokenizer)
        mark = self._mark_at(position)
        if mark is not None:
            twin._positions = self._positions
            twin._marks = self._marks
            twin._settled = self._settled
            twin._back_to(position, mark)
        return twin

    def restart(self) -> None:
        """Forgets everything: a prefill begins a new stretch of outputs."""
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
        """Takes back what was sampled after `held` tokens, and takes the caller's tokens in its place."""
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
