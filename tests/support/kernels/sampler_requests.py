"""Makes requests to the sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import BEST, GPU_KINDS, GPUS

Array = np.ndarray
Fields = dict[str, Any]
VOCAB = 83  # no multiple of 16, of 32, or of a chunk

# A device, and the factor by which it gets fewer requests: the emulated GPU is thousands of times slower.
SAMPLERS = [
    (BEST, 1),
    *((gpu, 20 if kind == "cuda_emulated" else 1) for gpu, kind in zip(GPUS, GPU_KINDS, strict=True)),
]
each_sampler = pytest.mark.parametrize(
    ("device", "fewer"), SAMPLERS, ids=["cpu", *(gpu.name.replace(" ", "_") for gpu in GPUS)]
)


def row_of(*logits: float) -> Array:
    return np.array(logits, np.float32)


def normal_rows(seed: int, n: int, vocab: int = VOCAB, spread: float = 3) -> Array:
    return (np.random.default_rng(seed).normal(size=(n, vocab)) * spread).astype(np.float32)


def tokens(device: core.Device, rows: Array, requests: list[Fields]) -> list[int]:
    results = core.sample(device, rows, requests)
    assert {status for status, *_ in results} == {"ok"}
    return [token for _, token, *_ in results]


def one(row: Array, device: core.Device = BEST, **fields: Any) -> int:
    return tokens(device, row[None, :], [fields])[0]


def draws(row: Array, n: int, device: core.Device = BEST, **fields: Any) -> list[int]:
    """Returns the tokens drawn for n output indices."""
    return tokens(device, row[None, :], [{"row": 0, "index": i, **fields} for i in range(n)])


def random_fields(rng: np.random.Generator, vocab: int) -> Fields:
    """Returns random options; together they cover every option."""
    history = rng.integers(0, vocab + 3, size=rng.integers(0, 40)).tolist()
    choices: Fields = {
        "temperature": float(rng.choice([0.2, 0.7, 1.0, 2.5])),
        "top_k": int(rng.choice([0, 0, 2, 17, vocab, vocab + 9])),
        "top_p": float(rng.choice([1, 1, 0.3, 0.9, 0.999])),
        "min_p": float(rng.choice([0, 0, 0.02, 0.3])),
        "typical_p": float(rng.choice([1, 1, 0.5, 0.95])),
        "repetition_penalty": float(rng.choice([1, 1.3, 0.7])),
        "frequency_penalty": float(rng.choice([0, 0.4])),
        "presence_penalty": float(rng.choice([0, -0.6])),
        "penalty_window": int(rng.choice([0, 5])),
        "dry_multiplier": float(rng.choice([0, 0.8])),
        "history": history,
        "n_output": int(rng.integers(0, len(history) + 1)),
        "seed": int(rng.integers(0, 2**63)),
        "index": int(rng.integers(0, 2**32)),
    }
    if rng.random() < 0.3:
        choices["logit_bias"] = {int(i): float(rng.normal() * 3) for i in rng.integers(0, vocab, size=4)}
    if rng.random() < 0.3:
        choices["masks"] = [(rng.random(vocab) < 0.6).tolist()]
    return choices
