"""Prompts with images whose encodings are given, and what a model of imp makes of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service import _core
from imp_service import _testing as core
from support.engine.media_prompts import PLACEHOLDER
from support.engine.script_engine import TurnedEngine
from support.models.forward_runs import prompt
from support.models.media_runs import load_for_media
from support.models.tiny_models import hashed
from support.oracles.script_oracle import Sampler

Array = NDArray[np.float32]
VOCABULARY = 53
# Rows and columns of the cells of each image. The first has more cells than the windows of the models.
GRIDS = ((5, 6), (4, 2), (2, 6))
# The longest that an image changes the text behind it, and what stands between images.
TEXT, BETWEEN = 21, 4


@dataclasses.dataclass(frozen=True)
class CellPrompt:
    """Text, and images between it. `rows` has the encoding of each image."""

    tokens: list[int]  # with the placeholder in cells
    firsts: list[int]  # the first cell of each image
    grids: Sequence[tuple[int, int]]
    rows: list[Array]

    @property
    def scored(self) -> list[int]:
        """The cells whose logits predict a token of the text, or the first output."""
        behind = [*self.tokens[1:], 0]
        return [cell for cell, token in enumerate(behind) if token != PLACEHOLDER]

    def spans(self, traits: dict[str, Any]) -> list[_core.MediaSpan]:
        """The images as the decoder with these traits needs them."""
        spans = []
        for first, grid, rows in zip(self.firsts, self.grids, self.rows, strict=True):
            pixels = rows.tobytes()
            media = _core.Media(hashlib.sha256(pixels).digest(), [(1, len(pixels) // 3, pixels, len(rows))])
            places: dict[str, Any] = {"grid": grid, "n_positions": max(grid)} if traits["planes"] else {}
            spans.append(_core.MediaSpan(media, 0, first, is_atomic=traits["is_atomic"], **places))
        return spans


def cell_prompt(n_images: int, width: int) -> CellPrompt:
    """Returns a prompt whose encodings have rows of `width` numbers."""
    text = [4 + token for token in prompt(TEXT + n_images * BETWEEN, VOCABULARY - 4)]
    tokens, firsts, rows = text[:7], [], []
    for number, grid in enumerate(GRIDS[:n_images]):
        n_cells = grid[0] * grid[1]
        firsts.append(len(tokens))
        tokens += [PLACEHOLDER] * n_cells + text[7 + number * BETWEEN :][:BETWEEN]
        rows.append((2 * hashed(f"image {number}", (n_cells, width), 0)).astype(np.float32))
    return CellPrompt(tokens + text[7 + n_images * BETWEEN :], firsts, GRIDS[:n_images], rows)


def centred(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Logits without what is common to a row, which log probabilities do not have."""
    found: NDArray[np.float64] = rows - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    return found


class CellReader:
    """An engine over a model whose encoder returns the rows of a prompt."""

    def __init__(self, path: Path, **given: Any) -> None:
        self.model = load_for_media(path, path.parent, kv_dtype="f32", **given)
        self.traits: dict[str, Any] = core.media_traits(self.model)

    def logits(self, given: CellPrompt, chunk: int) -> NDArray[np.float64]:
        """Returns the centred logits of `CellPrompt.scored`."""
        states = {"n_state_slots": 12} if any(fact["name"] == "linear_layers" for fact in self.model.facts) else {}
        options = _core.EngineOptions(
            n_blocks=16, max_context=256, max_running=2, step_tokens=128, prefill_chunk=chunk, media_rows=128,
            max_candidates=VOCABULARY, cache_secret=(3, 5), prefix_cache=False, **states,
        )  # fmt: skip
        engine = TurnedEngine(core.ManualModelEngine(self.model, options, encoder="rows"))
        ticket = engine.generate(
            given.tokens, media=given.spans(self.traits), max_outputs=1, scores=True, n_score_candidates=VOCABULARY,
            logits=True, sampling=Sampler(temperature=0.0),
        )  # fmt: skip
        engine.turn_until_idle()
        engine.finished(ticket)
        candidates = engine.started(ticket).scores.candidates
        rows = np.zeros((len(given.scored), VOCABULARY))
        for row, cell in zip(rows[:-1], given.scored[:-1], strict=True):
            for candidate in candidates[cell + 1]:
                row[candidate.token] = candidate.logprob
        [drawn] = [event for event in engine.events[ticket] if isinstance(event, _core.TokenEvent)]
        rows[-1] = drawn.logits
        return centred(rows)


__all__ = ["GRIDS", "PLACEHOLDER", "VOCABULARY", "CellPrompt", "CellReader", "cell_prompt", "centred"]
