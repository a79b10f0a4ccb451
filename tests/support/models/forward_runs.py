"""Runs forward passes over tiny models with chosen rows, blocks and batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service import _core
from support.models.tiny_models import TinyModel
from support.run.needed import TESTING, needs

Logits = NDArray[np.float32]
BLOCK = 16


def overrides(**values: Any) -> _core.ModelOverrides:
    result = _core.ModelOverrides()
    for name, value in values.items():
        setattr(result, name, value)
    return result


def load(
    source: TinyModel | Path,
    folder: Path,
    *,
    device: str = "cpu",
    isa: str = "auto",
    threads: int = 1,
    max_rows: int = 1024,
    max_logits_rows: int | None = None,
    cublaslt: Sequence[str] = (),
    **changes: Any,
) -> Any:
    """Loads the model. On a GPU it allows kernels that are not validated on hardware, because tests check those too."""
    path = source if isinstance(source, Path) else source.write(folder / "m.gguf")
    if device != "cpu":
        changes = {"unvalidated_kernels": True, **changes}
    return _core.Model.load(
        _core.open_model_file(path), overrides=overrides(**changes), device=device, isa=isa, threads=threads,
        max_rows=max_rows, max_logits_rows=max_logits_rows or max_rows, kv_bytes=1 << 20, cublaslt=list(cublaslt),
    )  # fmt: skip


def prompt(n: int, vocab_size: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab_size, n)]


class Cache:
    """A model with a pool of blocks, which sequences take in an order that is not ascending."""

    def __init__(self, model: Any, n_blocks: int = 64) -> None:
        with needs(TESTING):
            import imp_service._testing as core
        self._input = core.SequenceInput
        self.forward = core.Forward(model, n_blocks)
        self.free = sorted(range(n_blocks), key=lambda block: (7 * block + 3) % n_blocks)

    def blocks(self, n_tokens: int) -> list[int]:
        return [self.free.pop() for _ in range(-(-n_tokens // BLOCK))]

    def run(self, *parts: tuple[Sequence[int], int, list[int]]) -> list[Logits]:
        """Returns the logits of all rows of each sequence. parts: (tokens, first position, blocks) of each sequence."""
        n_rows = sum(len(tokens) for tokens, _, _ in parts)
        inputs = [self._input(list(tokens), position, blocks) for tokens, position, blocks in parts]
        rows = self.forward.run(inputs, list(range(n_rows)))
        ends = np.cumsum([len(tokens) for tokens, _, _ in parts])[:-1]
        return list(np.split(rows, ends))

    def prefill(self, tokens: Sequence[int], chunk: int = 0) -> Logits:
        """Returns the logits of all rows of a new sequence, evaluated in chunks (0: in one)."""
        blocks = self.blocks(len(tokens))
        step = chunk or len(tokens)
        return np.concatenate([
            self.run((tokens[at : at + step], at, blocks))[0] for at in range(0, len(tokens), step)
        ])  # fmt: skip


def logits(model: Any, tokens: Sequence[int]) -> Logits:
    return Cache(model).prefill(tokens)


def distance(got: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """Returns the largest difference of two sets of logits, relative to their root mean square."""
    return float(np.abs(got - expected).max() / np.sqrt(np.mean(expected * expected)))


def rms_distance(got: NDArray[Any], expected: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected * expected)))
