"""Whole sequences of a GPU, emulated or real, agree with the CPU's: they differ only where two tokens nearly tie."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from support.engine.model_engine import ModelEngine
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import load, prompt
from support.models.tiny_models import TinyModel, tiny
from support.oracles.tolerances import SEQUENCES_AGREE

N_OUTPUTS = 16
GREEDY = _core.SamplingOptions(temperature=0.0)


@dataclasses.dataclass(frozen=True)
class Sequence:
    tokens: list[int]
    logits: list[np.ndarray]  # from which each token was drawn


def generated(model: TinyModel, folder: Path, device: str, **changes: bool) -> list[Sequence]:
    """Generates eight sequences together, from prompts of different lengths, in chunks."""
    engine = ModelEngine(load(model, folder, device=device, **changes), prefill_chunk=16)
    prompts = [prompt(3 + 5 * i, model.vocab_size, seed=i) for i in range(8)]
    tickets = [engine.generate(tokens, N_OUTPUTS, sampling=GREEDY, logits=True) for tokens in prompts]
    return [
        Sequence(engine.outputs(ticket), [np.frombuffer(row, np.float32) for row in engine.rows(ticket)])
        for ticket in tickets
    ]


def agree(reference: Sequence, other: Sequence) -> bool:
    for logits, expected, token in zip(reference.logits, reference.tokens, other.tokens, strict=True):
        if token != expected:
            return bool(logits[expected] - logits[token] < SEQUENCES_AGREE)
    return True


@pytest.mark.long
@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize(("family", "dtype"), [("llama", "f16"), ("qwen3", "bf16"), ("gemma2", "f16")])
def test_det_12_sequences_of_a_gpu_agree_with_the_cpus(device: str, family: str, dtype: str, tmp_path: Path) -> None:
    model = tiny(family, hidden_size=64, ffn_size=96, n_heads=4, head_dim=16, n_layers=2, dtype=dtype)
    reference, found = generated(model, tmp_path, "cpu"), generated(model, tmp_path, device)
    assert [agree(one, other) for one, other in zip(reference, found, strict=True)] == [True] * len(reference)
    assert sum(one.tokens == other.tokens for one, other in zip(reference, found, strict=True)) > len(reference) / 2
    assert len({tuple(one.tokens) for one in reference}) == len(reference)
    # Negative control: the sequences of a model of other weights.
    wrong = generated(dataclasses.replace(model, seed=1), tmp_path, "cpu")
    assert sum(agree(one, other) for one, other in zip(reference, wrong, strict=True)) < len(reference) / 2


@pytest.mark.sweep(quick=lambda dtype, **_: dtype == "q8_0")
@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize(("family", "dtype"), [("llama", "q8_0"), ("qwen3", "q4_k"), ("qwen3", "q6_k")])
def test_det_12_det_13_quantized_sequences_agree_where_both_multiply_by_int8(
    device: str, family: str, dtype: str, tmp_path: Path
) -> None:
    """Deterministic mode multiplies by int8 for any number of rows: codes and sums equal the CPU's, bit for bit."""
    sizes = {"hidden_size": 256, "ffn_size": 256, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "n_layers": 1}
    model = tiny(family, dtype=dtype, **sizes)
    reference = generated(model, tmp_path, "cpu")
    found = generated(model, tmp_path, device, deterministic=True)
    assert [agree(one, other) for one, other in zip(reference, found, strict=True)] == [True] * len(reference)
    wrong = generated(dataclasses.replace(model, seed=1), tmp_path, "cpu")
    assert sum(agree(one, other) for one, other in zip(reference, wrong, strict=True)) < len(reference) / 2
