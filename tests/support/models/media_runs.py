"""Runs tiny models over batches as media make them: placed rows, rows with ends, and positions in several planes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service import _core
from imp_service import _testing as core
from support.models.forward_runs import Cache, Logits, overrides
from support.models.tiny_models import TinyModel

Rows = NDArray[np.float32]


def load_for_media(
    source: TinyModel | Path,
    folder: Path,
    *,
    device: str = "cpu",
    takes_media: bool = True,
    layers_ahead: Sequence[int] | None = None,
    planes: Sequence[int] | None = None,
    with_head: bool = False,
    **changes: Any,
) -> Any:
    """Loads the model with a decoder that takes media. What is given replaces what the file configures."""
    path = source if isinstance(source, Path) else source.write(folder / "m.gguf")
    if device != "cpu":
        changes = {"unvalidated_kernels": True, **changes}
    return core.load_for_media(
        _core.open_model_file(path), overrides=overrides(**changes), device=device, takes_media=takes_media,
        layers_ahead=layers_ahead, planes=planes, with_head=with_head,
    )  # fmt: skip


def embeddings(model: Any, source: TinyModel, tokens: Sequence[int]) -> Rows:
    """Returns encodings that equal these tokens: their rows of the residual stream, to which nothing is added later."""
    [scale] = [fact["value"] for fact in model.facts if fact["name"] == "embedding_scale"]
    table = source.tensors()["token_embd.weight"].stored().astype(np.float32)
    rows = np.zeros((len(tokens), core.media_traits(model)["width"]), np.float32)
    rows[:, : source.hidden_size] = table[list(tokens)] * np.float32(scale)
    return rows


class MediaRun:
    """One sequence, some of whose rows are placed, see ahead, or have positions of their own."""

    def __init__(
        self,
        model: Any,
        tokens: Sequence[int],
        *,
        placed: tuple[int, Rows] | None = None,  # the first row, and what replaces it and those after it
        ends: Sequence[int] = (),
        positions: Sequence[Sequence[int]] = (),
    ) -> None:
        self.cache = Cache(model)
        self.blocks = self.cache.blocks(len(tokens))
        self.tokens, self.placed, self.ends, self.positions = list(tokens), placed, list(ends), positions

    def rows(self, begin: int, end: int) -> Logits:
        """Evaluates rows [begin, end) and returns their logits."""
        part = core.SequenceInput(
            self.tokens[begin:end], begin, self.blocks, self.ends[begin:end],
            [list(plane[begin:end]) for plane in self.positions],
        )  # fmt: skip
        return self.cache.forward.run([part], list(range(end - begin)), self._placed(begin, end))

    def _placed(self, begin: int, end: int) -> list[tuple[int, Rows, list[int]]]:
        if self.placed is None:
            return []
        first, values = self.placed
        held = range(max(begin, first), min(end, first + len(values)))
        return [(held.start - begin, values, [cell - first for cell in held])] if held else []

    def prefill(self, chunk: int = 0) -> Logits:
        n, step = len(self.tokens), chunk or len(self.tokens)
        return np.concatenate([self.rows(at, min(at + step, n)) for at in range(0, n, step)])
