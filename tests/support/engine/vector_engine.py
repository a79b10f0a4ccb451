"""Engines over scripts that make vectors of texts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from imp_service import _core
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import mix
from support.oracles.vector_oracle import Vector, finished, hash_vector

WIDTH = 8

ENCODER = {
    "head": False, "vector_width": WIDTH, "token_types": 2, "whole_texts": True, "sees_all": True,
}  # fmt: skip
MEAN_DECODER = {"vector_width": WIDTH, "whole_texts": True}
LAST_DECODER = {"vector_width": WIDTH}
KINDS = {"encoder": ENCODER, "mean": MEAN_DECODER, "last": LAST_DECODER}


class VectorEngine(ScriptEngine):
    """A ScriptEngine that makes vectors of texts."""

    def __init__(self, kind: str, *, script: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(script={**KINDS[kind], **(script or {})}, **{"n_tokens": 16, **options})

    def embed(
        self,
        tokens: Sequence[int],
        *,
        dimensions: int = 0,
        normalized: bool = True,
        second_text: int = -1,
        **given: Any,
    ) -> int:
        """Submits a text whose vector is wanted; returns the ticket."""
        vector = _core.VectorRequest(dimensions=dimensions, normalized=normalized)
        return self.generate(tokens, **{"max_outputs": 0, "vector": vector, "second_text": second_text, **given})

    def vector(self, ticket: int) -> Vector:
        self.finished(ticket)
        vector: Vector = self.started(ticket).vector
        return vector

    def steps_of(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """The forward passes in which whole texts were evaluated, each of them different."""
        steps = {
            tuple(rows.tokens): number
            for number, step in enumerate(self.core.forwards)
            for rows in step
            if rows.is_pooled
        }
        return [steps[tuple(text)] for text in texts]


def texts_of(n: int, *, longest: int, seed: int = 0) -> list[list[int]]:
    """Different texts of 2 to `longest` tokens."""
    rng = random.Random(seed)
    return [text_of(rng.randint(2, longest), 1000 * seed + i) for i in range(n)]


def text_of(length: int, salt: int) -> list[int]:
    """A text like no other: it begins with the digits of its salt."""
    digits = [salt % 16, salt // 16 % 16, salt // 256 % 16, salt // 4096 % 16]
    return [*digits, *(mix(salt * 1_000_003 + i) % 16 for i in range(length))][:length]


def expected(tokens: Sequence[int], dimensions: int = 0, *, normalized: bool = True, second_text: int = -1) -> Vector:
    return finished(hash_vector(tokens, WIDTH, second_text), dimensions, normalized=normalized)
