"""Many steps on a GPU, emulated or real: the same bits each time, captured or not, and no more memory in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.devices import GPU_KINDS
from support.forward_runs import Cache, load, prompt
from support.model_engine import ModelEngine
from support.tiny_models import tiny

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
        """One decode step. With logits of some rows alone it is launched op by op, else captured and done again."""
        inputs = [core.SequenceInput(*sequence) for sequence in self.sequences[:n_sequences]]
        return self.cache.forward.run(inputs, list(range(n_sequences)) if logits_rows is None else logits_rows)


def test_det_11_repeats_have_the_same_bits(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)
    mixed = [(prompt(9, 51, seed=5), 0, running.cache.blocks(16)), *running.sequences]
    outputs = {np.concatenate(running.cache.run(*mixed)).tobytes() for _ in range(times(device, 100, 3))}
    assert len(outputs) == 1
    other = [(prompt(9, 51, seed=6), 0, mixed[0][2]), *running.sequences]
    assert np.concatenate(running.cache.run(*other)).tobytes() not in outputs


def test_det_10_captured_steps_have_the_bits_of_launched_ones(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)
    launched = np.concatenate([running.step(2, [row]) for row in (0, 1)])
    for _ in range(4):  # the first is launched too, the second captured
        np.testing.assert_array_equal(running.step(2), launched)
    assert (launched[0] != launched[1]).any()


def test_sch_16_an_engine_keeps_one_step_ahead_and_draws_the_same(device: str, tmp_path: Path) -> None:
    """Greedy and drawn, in company: the tokens are those of an engine that is held back at every step by a penalty
    that weighs nothing."""
    model = load(tiny("qwen3", vocab_size=96, n_layers=2), tmp_path, device=device)
    samplers = [_core.SamplingOptions(temperature=0.0), _core.SamplingOptions(temperature=0.9, seed=5)]

    def outputs(*held_back: _core.SamplingOptions) -> tuple[list[list[int]], int]:
        engine = ModelEngine(model)
        engine.core.hold()
        for sampling in held_back:
            engine.generate(prompt(5, 96, seed=9), 20, sampling=sampling)
        tickets = [
            engine.generate(prompt(7 + 11 * i, 96, seed=i), 12, sampling=sampling)
            for i, sampling in enumerate(samplers)
        ]
        engine.core.let_go()
        return [engine.outputs(ticket) for ticket in tickets], engine.core.stats().n_steps_ahead

    ahead, n_ahead = outputs()
    held, n_held = outputs(_core.SamplingOptions(temperature=0.0, presence_penalty=0.5))
    assert ahead == held
    assert len(set(ahead[0])) > 1 and ahead[0] != ahead[1]
    assert n_ahead >= 8 > n_held


def test_many_steps_take_no_more_memory(device: str, tmp_path: Path) -> None:
    running = Running(device, tmp_path)

    def some_steps(n: int) -> None:
        for i in range(n):
            running.step(1 + i % len(LENGTHS), None if i % 5 else [0])

    some_steps(10)  # every shape that there is
    before, expected = core.device_bytes_left(running.model), running.step(3)
    some_steps(times(device, 1000, 25))
    assert core.device_bytes_left(running.model) == before
    np.testing.assert_array_equal(running.step(3), expected)
