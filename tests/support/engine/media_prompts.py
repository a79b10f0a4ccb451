"""Prompts with media for engines over a script: what the engine gets, and the tokens that the model then reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from imp_service import _core
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import MASK64, hash_logits, mix

PLACEHOLDER = 3
"""In the cells of media."""
ENCODER: dict[str, Any] = {"media_rows": 64}
"""Of a script whose model takes media."""
ATOMIC: dict[str, Any] = {"media_atomic": 64}
"""The same if the cells of a part see each other."""
REFUSED, THROWS, NOT_FINITE, FAULTING_DEVICE = 1, 2, 3, 4
"""What a part makes the encoder do."""


@dataclass(frozen=True)
class Picture:
    """A medium: the cells of each part, or rows and columns of them."""

    seed: int
    parts: tuple[int | tuple[int, int], ...] = (8,)
    is_atomic: bool = False
    fault: int = 0

    def cells(self, part: int) -> int:
        size = self.parts[part]
        return size if isinstance(size, int) else size[0] * size[1]

    def n_positions(self, part: int) -> int:
        size = self.parts[part]
        return size if isinstance(size, int) else max(size)

    @property
    def digest(self) -> int:
        return mix(self.seed)

    def value(self, part: int, row: int) -> int:
        """Returns the token that the script model reads in a cell."""
        return 1 << 20 | mix(self.digest ^ (part << 32 | row)) >> 44

    def media(self) -> _core.Media:
        digest = self.digest.to_bytes(8, "little") + bytes(24)
        return _core.Media(digest, [(1, 1, bytes([self.fault] * 3), self.cells(i)) for i in range(len(self.parts))])


@dataclass
class MediaPrompt:
    """Tokens with the placeholder in the cells of media."""

    tokens: list[int] = field(default_factory=list)
    spans: list[_core.MediaSpan] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    """What the model reads in each cell."""
    positions: list[tuple[int, int, int]] = field(default_factory=list)

    def given(self) -> dict[str, Any]:
        """Returns the arguments of a run."""
        return {"tokens": self.tokens, "media": self.spans}


def media_prompt(*pieces: Sequence[int] | Picture, first_position: int = 0) -> MediaPrompt:
    """Joins text and pictures; a picture's parts follow each other without text between them."""
    prompt = MediaPrompt()
    position = first_position
    for piece in pieces:
        if isinstance(piece, Picture):
            media = piece.media()
            for part, size in enumerate(piece.parts):
                n, n_positions = piece.cells(part), piece.n_positions(part)
                columns = 0 if isinstance(size, int) else size[1]
                span = _core.MediaSpan(
                    media,
                    part,
                    len(prompt.tokens),
                    n_positions=n_positions,
                    grid=(0, 0) if isinstance(size, int) else size,
                    is_atomic=piece.is_atomic,
                )
                prompt.spans.append(span)
                prompt.tokens += [PLACEHOLDER] * n
                prompt.read += [piece.value(part, row) for row in range(n)]
                for i in range(n):
                    at = (i, i, i) if columns == 0 else (0, i // columns, i % columns)
                    prompt.positions.append((position + at[0], position + at[1], position + at[2]))
                position += n_positions
        else:
            prompt.tokens += piece
            prompt.read += piece
            prompt.positions += [(position + i,) * 3 for i in range(len(piece))]
            position += len(piece)
    return prompt


def logits_with_positions(positions: Sequence[tuple[int, int, int]]) -> Any:
    """Returns the rule of a script model with three planes, for a prompt with these positions and any outputs after."""
    shift = positions[-1][0] + 1 - len(positions)

    def logits(tokens: Sequence[int], vocab_size: int) -> list[float]:
        state = 0
        for cell, token in enumerate(tokens):
            three = positions[cell] if cell < len(positions) else (cell + shift,) * 3
            gap = sum((p - cell) * 257**plane for plane, p in enumerate(three)) & 0xFFFFFFFF
            state = mix(state ^ (token + 1) ^ (gap << 32))
        return [(mix((state + i) & MASK64) >> 40) / (1 << 21) for i in range(vocab_size)]

    return logits


def media_engine(rule: str = "hash", *, script: dict[str, Any] | None = None, **options: Any) -> ScriptEngine:
    """Returns an engine whose model takes media."""
    return ScriptEngine(rule, script={**ENCODER, **(script or {})}, **{"media_rows": 256, "max_running": 8, **options})


__all__ = [
    "ENCODER",
    "FAULTING_DEVICE",
    "NOT_FINITE",
    "PLACEHOLDER",
    "REFUSED",
    "THROWS",
    "MediaPrompt",
    "Picture",
    "hash_logits",
    "logits_with_positions",
    "media_engine",
    "media_prompt",
]
