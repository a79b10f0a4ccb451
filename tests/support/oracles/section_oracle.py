"""The outputs of a run whose section is bounded, by the definition: in text, from one output to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from imp_service import _core
from imp_service.text.channels.marker_steps import steps_anywhere, steps_at_start
from support.oracles.script_oracle import Sampler, hash_logits, sample

VOCAB_SIZE = 16


@dataclass(frozen=True)
class BoundedSection:
    """A section of outputs, and the most outputs in it."""

    opening: bytes
    closing: bytes
    # Of each token.
    texts: Sequence[bytes]
    # The tokens that close it, by the bytes of `closing` that are there.
    closings: Sequence[Sequence[int]]
    most: int
    is_open: bool = False
    recurs: bool = False

    def budget(self) -> _core.SectionBudget:
        """Returns it for the engine."""
        steps = steps_anywhere if self.recurs else steps_at_start
        opening = _core.Marker(len(self.opening), steps(self.opening, self.texts), is_first=not self.recurs)
        closing = _core.Marker(len(self.closing), steps_anywhere(self.closing, self.texts))
        section = _core.Section(opening, closing, [list(each) for each in self.closings], recurs=self.recurs)
        return _core.SectionBudget(section, self.most, is_open=self.is_open)


@dataclass
class BoundedOutputs:
    """Outputs in the making."""

    section: BoundedSection
    tokens: list[int] = field(default_factory=list)
    place: str = "before"
    text: bytes = b""  # since the place began
    n_inside: int = 0
    to_write: list[int] = field(default_factory=list)
    # What happened: "written" for each closing, "cut" if a part of it was there, "closed" if the model closed it,
    # "exact" if it would have done so at once.
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.section.is_open:
            self.place = "inside"

    def next(self, drawn: int) -> int:
        """Returns the next output, where `drawn` is what the model would write."""
        if self.place == "inside" and not self.to_write and self.n_inside >= self.section.most:
            n_there = self._n_there()
            self.to_write = list(self.section.closings[n_there])
            self.seen.append("cut" if n_there else "exact" if self.to_write[0] == drawn else "written")
        is_written = bool(self.to_write)
        token = self.to_write.pop(0) if is_written else drawn
        self.tokens.append(token)
        if not is_written:
            self._read(token)
        elif not self.to_write:
            self._close()
        return token

    def _n_there(self) -> int:
        closing = self.section.closing
        return next((n for n in range(len(closing) - 1, 0, -1) if self.text.endswith(closing[:n])), 0)

    def _read(self, token: int) -> None:
        self.text += self.section.texts[token]
        if self.place == "before":
            text = self.text if self.section.recurs else self.text.lstrip()
            if self.section.recurs and self.section.opening not in text:
                return
            if self.section.recurs or text.startswith(self.section.opening):
                self.place, self.text = "inside", b""
            elif not self.section.opening.startswith(text):
                self.place = "gone"
        elif self.place == "inside" and self.section.closing in self.text:
            self.seen.append("closed")
            self._close()
        elif self.place == "inside":
            self.n_inside += 1

    def _close(self) -> None:
        self.place, self.text = ("before" if self.section.recurs else "gone"), b""


def bounded_continuation(
    prompt: Sequence[int], n: int, sampler: Sampler, section: BoundedSection, *, sequence: int = 0
) -> BoundedOutputs:
    """Returns the first n outputs of a script model after `prompt`."""
    tokens, outputs = list(prompt), BoundedOutputs(section)
    for i in range(n):
        drawn = sample(hash_logits(tokens, VOCAB_SIZE), sampler, tokens, i, sequence=sequence)
        tokens.append(outputs.next(drawn))
    return outputs
