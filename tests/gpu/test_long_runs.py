"""Many steps on a GPU, emulated or real: the same bits each time, captured or not, and no memory growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import Cache, load, prompt
from support.models.tiny_models import tiny

pytestmark = pytest.mark.parametrize("device", GPU_KINDS)

LENGTHS = (3, 17, 40)
CONTEXT_BLOCKS = 4


def times(device: str, on_hardware: int, emulated: int) -> int:
    return on_hardware if device == "cuda" else emulated


class Running:
    """Sequences of different lengths, whose last tokens are evaluated again and again."""

    def __init__(self, device: str, folder: Path) -> None:
        source = tiny("qwen3", hidden_size=256, ffn_size=256, n_layers=2, dtype="q8_0")
        self.model = load(source, folder, device=device)
        self.cache = Cache(self.model)
        self.sequences = []
        for i, length in enumerate(LENGTHS):
            tokens, blocks = prompt(length, source.vocab_size, seed=i), self.cache.blocks(16 * CONTEXT_BLOCKS)
            self.cache.run((tokens, 0, blocks))
            self.sequences.append((tokens[-1:], length - 1, blocks))

    def step(self, n_sequences: int, logits_rows: list[int] | None = None) -> Any:
        """Runs a decode step: op by op with logits of only some rows, otherwise captured and replayed."""
        inputs = [core.SequenceInput(*sequence) for sequence in self.sequences[:n_sequences]]
        return self.cache.forward.run(inputs, list(range(n_sequences)) if logits_rows is None else logits_rows)


@pytest.mark.long
def test_det_11_repeats_have_the_same_bits(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)
    mixed = [(prompt(9, 51, seed=5), 0, running.cache.blocks(16)), *running.sequences]
    outputs = {np.concatenate(running.cache.run(*mixed)).tobytes() for _ in range(times(device, 100, 3))}
    assert len(outputs) == 1
    other = [(prompt(9, 51, seed=6), 0, mixed[0][2]), *running.sequences]
    assert np.concatenate(running.cache.run(*other)).tobytes() not in outputs


@pytest.mark.long
def test_det_10_captured_steps_have_the_bits_of_launched_ones(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)
    launched = np.concatenate([running.step(2, [row]) for row in (0, 1)])
    for _ in range(4):  # the first one is launched too, the second is captured
        np.testing.assert_array_equal(running.step(2), launched)
    assert (launched[0] != launched[1]).any()


@pytest.mark.long
def test_many_steps_take_no_more_memory(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)

    def some_steps(n: int) -> None:
        for i in range(n):
            running.step(1 + i % len(LENGTHS), None if i % 5 else [0])

    some_steps(15)  # every shape in both ways, because the first run of a kernel loads its code
    before, expected = core.device_bytes_left(running.model), running.step(3)
    some_steps(times(device, 1000, 25))
    assert core.device_bytes_left(running.model) == before
    np.testing.assert_array_equal(running.step(3), expected)
