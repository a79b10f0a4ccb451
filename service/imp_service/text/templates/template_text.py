"""Strings of a chat template that record which of their characters the template wrote.

Only the template may write special tokens: text of a caller stays plain text wherever the template puts it. Literals of
the template are trusted, and every other string is not. So an operation that loses the origin is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex

# (length, is trusted) of each run of characters, in order; neighbours differ.
Runs = tuple[tuple[int, bool], ...]


class TemplateText(str):
    """A string with runs of characters that the template wrote and others."""

    # None: the template wrote nothing of it. This is the case for most values, and there may be many.
    __slots__ = ("_runs",)
    _runs: Runs | None

    @classmethod
    def of_runs(cls, text: str, runs: Runs) -> TemplateText:
        value = cls(text)
        value._runs = runs
        return value

    @classmethod
    def trusted(cls, text: str) -> TemplateText:
        """Text that the template wrote."""
        return cls.of_runs(text, ((len(text), True),) if text else ())

    @classmethod
    def untrusted(cls, text: str) -> TemplateText:
        """Text that anyone may have written."""
        value = cls(text)
        value._runs = None
        return value

    def __str__(self) -> str:
        # The template engine calls str() on what it prints; the default would drop the runs.
        return self

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return cut_text(self, chosen, chosen + 1)
        if chosen.step == 1:
            return cut_text(self, chosen.start, chosen.stop)
        return TemplateText.untrusted(str.__getitem__(self, index))

    def spans(self) -> Iterator[tuple[str, bool]]:
        """The runs' texts, and whether the template wrote them."""
        start = 0
        for length, trusted in runs_of(self):
            yield str.__getitem__(self, slice(start, start + length)), trusted
            start += length


def runs_of(text: str) -> Runs:
    """A string of unknown origin is untrusted."""
    if isinstance(text, TemplateText) and text._runs is not None:
        return text._runs
    return ((len(text), False),) if text else ()


def is_trusted(text: str) -> bool:
    """Whether the template wrote all of it. True for an empty string."""
    return all(trusted for _, trusted in runs_of(text))


def join_texts(texts: Iterable[str]) -> TemplateText:
    """The concatenation."""
    pieces: list[str] = []
    runs: list[tuple[int, bool]] = []
    for piece in texts:
        pieces.append(piece)
        _append_runs(runs, runs_of(piece))
    return TemplateText.of_runs("".join(pieces), tuple(runs))


def join_printed(pieces: Iterable[str]) -> TemplateText:
    """The concatenation of what generated code prints: a plain string there is a part of the template's source."""
    texts: list[str] = []
    runs: list[tuple[int, bool]] = []
    for piece in pieces:
        texts.append(piece)
        if type(piece) is not str:
            _append_runs(runs, runs_of(piece))
        elif piece:
            _append_runs(runs, ((len(piece), True),))
    return TemplateText.of_runs("".join(texts), tuple(runs))


def repeat_text(text: str, n: int) -> TemplateText:
    """The text `n` times."""
    runs = runs_of(text)
    if len(runs) > 1:
        return join_texts([text] * n)
    repeated = str.__mul__(text, n)
    return TemplateText.of_runs(repeated, tuple((length * n, trusted) for length, trusted in runs if n > 0))


def cut_text(text: str, start: int, stop: int) -> TemplateText:
    """The characters from `start` to `stop`."""
    return TemplateText.of_runs(str.__getitem__(text, slice(start, stop)), tuple(_cut(runs_of(text), start, stop)))


def strip_text(text: str, chars: str | None, *, left: bool, right: bool) -> TemplateText:
    """`strip`, `lstrip` and `rstrip`."""
    kept = str.lstrip(text, chars) if left else text
    start = len(text) - len(kept)
    return cut_text(text, start, start + len(str.rstrip(kept, chars)) if right else len(text))


def cut_texts(text: str, lengths: Iterable[int]) -> list[TemplateText]:
    """Parts of these lengths, one after the other, in one pass. Lengths beyond the end of the text are cut short."""
    runs = iter(runs_of(text))
    n_left, trusted = 0, False
    parts, start = [], 0
    for length in lengths:
        stop = min(start + length, len(text))
        n_missing, own = stop - start, []
        while n_missing:
            if not n_left:
                n_left, trusted = next(runs)
            n = min(n_missing, n_left)
            own.append((n, trusted))
            n_missing, n_left = n_missing - n, n_left - n
        parts.append(TemplateText.of_runs(str.__getitem__(text, slice(start, stop)), tuple(own)))
        start = stop
    return parts


def cut_at_separators(text: str, parts: Sequence[str], separator: str) -> list[TemplateText]:
    """The parts into which the text was split, with each separator between two of them."""
    return cut_texts(text, [n for part in parts for n in (len(part), len(separator))])[:-1]


def _append_runs(runs: list[tuple[int, bool]], more: Runs) -> None:
    for length, trusted in more:
        if runs and runs[-1][1] == trusted:
            runs[-1] = (runs[-1][0] + length, trusted)
        else:
            runs.append((length, trusted))


def _cut(runs: Runs, start: int, stop: int) -> Iterator[tuple[int, bool]]:
    position = 0
    for length, trusted in runs:
        n_kept = min(stop, position + length) - max(start, position)
        if n_kept > 0:
            yield n_kept, trusted
        position += length
