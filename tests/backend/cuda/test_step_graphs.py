"""Decode steps are captured once for each batch size, and replayed for any lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.devices import GPU_KINDS, emulated_only
from support.models.forward_runs import BLOCK, load, prompt
from support.models.tiny_models import tiny

EMULATED = "cuda_emulated"


class Sequences:
    """Sequences of one model that generate together, each with its blocks."""

    def __init__(self, model: Any, n_blocks: int = 64) -> None:
        self.model = model
        self.forward = core.Forward(model, n_blocks)
        self.free = list(range(n_blocks))
        self.blocks: dict[int, list[int]] = {}
        self.tokens: dict[int, list[int]] = {}

    def begin(self, number: int, tokens: list[int]) -> np.ndarray:
        """Evaluates a prompt; returns the last row's logits."""
        self.tokens[number], self.blocks[number] = [], []
        return self.step({number: tokens})[number]

    def step(self, added: dict[int, list[int]]) -> dict[int, np.ndarray]:
        """Evaluates tokens of some sequences as one batch; returns the logits of each one's last row."""
        inputs, rows, n_rows = [], [], 0
        for number, tokens in added.items():
            held = len(self.tokens[number])
            while len(self.blocks[number]) * BLOCK < held + len(tokens):
                self.blocks[number].append(self.free.pop())
            inputs.append(core.SequenceInput(tokens, held, self.blocks[number]))
            n_rows += len(tokens)
            rows.append(n_rows - 1)
            self.tokens[number] += tokens
        return dict(zip(added, self.forward.run(inputs, rows), strict=True))

    @property
    def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = core.gpu_step_counts(self.model)
        return counts


@pytest.fixture(params=GPU_KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return load(tiny("llama"), tmp_path, device=request.param, deterministic=True)


def test_each_size_is_captured_once_whatever_the_lengths(model: Any) -> None:
    running = Sequences(model)
    for number in range(4):
        running.begin(number, prompt(5 + 7 * number, 50, seed=number))
    eager = running.counts["eager"]
    for step in range(20):  # across the ends of blocks
        n = 3 if step % 2 else 4
        running.step({number: [step + number] for number in range(n)})
        running.step({0: [step]})
    counts = running.counts
    # Batches of 3 and 4 share a size, 1 is another; the first batch of each size runs without a graph.
    assert counts["captures"] == 2
    assert counts["eager"] == eager + 2
    assert counts["replays"] == 40 - 2 - 2
    assert counts["evictions"] == counts["failures"] == 0
    assert counts["last_failure"] == ""


def six_steps(device: str, folder: Path, *, together: bool) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Returns rows of logits of three sequences, together or each alone, and the counts of graphs."""
    prompts = [prompt(3 + 11 * number, 50, seed=number) for number in range(3)]
    running = Sequences(load(tiny("qwen3"), folder, device=device, deterministic=True))
    rows = [running.begin(number, tokens) for number, tokens in enumerate(prompts)]
    for step in range(6):
        added = {number: [step + 5 * number] for number in range(3)}
        batches = [added] if together else [{number: tokens} for number, tokens in added.items()]
        for batch in batches:
            rows += running.step(batch).values()
    return rows, running.counts


@pytest.mark.parametrize("device", GPU_KINDS)
def test_det_10_grf_1_a_step_has_the_same_bits_padded_or_alone(tmp_path: Path, device: str) -> None:
    together, counts = six_steps(device, tmp_path, together=True)
    assert (counts["replays"], counts["failures"]) == (4, 0)
    alone, counts = six_steps(device, tmp_path, together=False)
    assert counts["captures"] == 1
    np.testing.assert_array_equal(together, alone)
    assert len({row.tobytes() for row in together}) == len(together)


@pytest.mark.long
@emulated_only
def test_det_10_grf_3_steps_that_cannot_be_captured_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is counted once, with its reason, and the capture is not retried."""
    captured, _ = six_steps(EMULATED, tmp_path, together=True)
    monkeypatch.setenv("IMP_EMULATED_GPU", "captures_fail")
    eager, counts = six_steps(EMULATED, tmp_path, together=True)
    assert (counts["captures"], counts["failures"], counts["replays"]) == (0, 1, 0)
    assert counts["last_failure"] == "cudaErrorStreamCaptureInvalidated"
    np.testing.assert_array_equal(captured, eager)


def test_what_was_captured_for_memory_that_is_gone_is_not_done_again(model: Any) -> None:
    """A new pool or decoder may have the address of an old one."""
    expected = None
    for number in range(1, 6):
        running = Sequences(model, n_blocks=4)
        running.begin(0, [1, 2, 3])
        rows = [running.step({0: [4 + step]})[0] for step in range(4)]
        assert running.counts["captures"] == number
        expected = rows if expected is None else expected
        np.testing.assert_array_equal(rows, expected)
        del running


@pytest.mark.long
def test_fewer_graphs_are_kept_than_there_are_shapes(model: Any) -> None:
    """Each pool is a separate shape: the least recently used graph is evicted, and its step is captured again."""
    pools = [Sequences(model, n_blocks=2) for _ in range(40)]
    for pool in pools:
        pool.begin(0, [1, 2, 3])
    for _ in range(3):
        for pool in pools:
            pool.step({0: [4]})
    counts = pools[0].counts
    assert counts["replays"] == 0  # each graph was evicted before its third step
    again = pools[-1]
    before = again.counts["captures"]
    for _ in range(3):
        again.step({0: [4]})
    assert again.counts["replays"] > 0
    assert again.counts["captures"] in (before, before + 1)


@emulated_only
@pytest.mark.sweep(quick=lambda launches: launches == 40)
@pytest.mark.parametrize("launches", [0, 40, 300])
def test_a_lost_device_is_said_and_stays_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: int) -> None:
    source = tiny("llama")
    monkeypatch.setenv("IMP_EMULATED_GPU", f"launches_before_fault={1000 + launches}")
    running = Sequences(load(source, tmp_path, device=EMULATED))
    with pytest.raises(_core.DeviceError, match="emulated GPU: cudaErrorLaunchFailure") as error:
        running.begin(0, [1, 2, 3])
        for step in range(100):
            running.step({0: [step % 50]})
    assert error.value.reason == "DEVICE_FAULT"
    with pytest.raises(_core.DeviceError, match="can no longer be used"):
        running.step({0: [1]})


@emulated_only
@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("no_driver", r"no NVIDIA driver here: cudaErrorInsufficientDriver \(35\)"),
        ("driver_version=12040", r"the NVIDIA driver supports CUDA up to 12\.4, expected 13\.0 or later"),
        ("no_device", r"no GPU that this process may use: cudaErrorNoDevice \(100\)"),
        ("broken", r"the GPU does not answer: cudaErrorSystemNotReady \(802\)"),
        ("compute_capability=75", r"emulated GPU has compute capability 7\.5, expected 8\.0 or later"),
    ],
)
def test_lif_3_a_gpu_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, message: str
) -> None:
    monkeypatch.setenv("IMP_EMULATED_GPU", state)
    with pytest.raises(_core.DeviceError, match=f"device cuda: {message}") as error:
        load(tiny("llama"), tmp_path, device=EMULATED)
    assert error.value.reason == "DEVICE_MISSING"


@emulated_only
def test_memory_that_does_not_suffice_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMP_EMULATED_GPU", "total_bytes=2000000")
    with pytest.raises(_core.ResourceExhausted, match=r"weights .* of ") as error:
        load(tiny("llama"), tmp_path, device=EMULATED)
    assert error.value.reason == "NO_MEMORY"
