"""An engine on a GPU prepares graphs of small batches and all memory of its steps before the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.script_engine import Sampler, TurnedEngine
from support.kernels.devices import GPU_KINDS, emulated_only
from support.models.forward_runs import load, prompt
from support.models.tiny_models import tiny

EMULATED = "cuda_emulated"
VOCABULARY = 96
PREPARED = (1, 2, 4, 8)
# Additional outputs that a run may request, and kinds of sampling.
RUNS: tuple[dict[str, Any], ...] = (
    {},
    {"sampling": Sampler(temperature=0.8, seed=3)},
    {"sampling": Sampler(repetition_penalty=1.2, presence_penalty=0.3)},
    {"logprobs": True, "n_candidates": 5},
    {"logits": True},
    {"scores": True},
)


def model_on(device: str, folder: Path) -> Any:
    path = folder / "model.gguf"
    if not path.exists():
        tiny("qwen3", vocab_size=VOCABULARY, n_layers=2).write(path)
    return load(path, folder, device=device)


def engine_over(model: Any) -> TurnedEngine:
    options = _core.EngineOptions(n_blocks=60, max_context=96, max_running=16, step_tokens=64, prefill_chunk=64)
    return TurnedEngine(_testing.ManualModelEngine(model, options))


@pytest.mark.long
@pytest.mark.parametrize("n_sequences", [1, 2, 3, 7])
@pytest.mark.parametrize("device", GPU_KINDS)
def test_grf_4_the_first_steps_of_small_batches_are_replayed(device: str, n_sequences: int, tmp_path: Path) -> None:
    engine = engine_over(model_on(device, tmp_path))
    prepared = engine.core.stats().graphs
    assert (prepared.captures, prepared.failures) == (len(PREPARED), 0)
    tickets = [engine.generate(prompt(5, VOCABULARY, seed=i), max_outputs=4) for i in range(n_sequences)]
    engine.turn_until_idle()
    after = engine.core.stats().graphs
    assert after.captures == prepared.captures
    assert after.failures == 0
    # Each run's first token comes from its prompt, all others from graphs.
    assert after.replays - prepared.replays >= 3
    assert after.eager - prepared.eager == 1
    assert {len(engine.tokens(ticket)) for ticket in tickets} == {4}


@pytest.mark.parametrize("device", GPU_KINDS)
def test_grf_4_control_a_larger_batch_is_captured_when_it_comes(device: str, tmp_path: Path) -> None:
    engine = engine_over(model_on(device, tmp_path))
    prepared = engine.core.stats().graphs
    for i in range(9):
        engine.generate(prompt(5, VOCABULARY, seed=i), max_outputs=5)
    engine.turn_until_idle()
    after = engine.core.stats().graphs
    assert (after.captures, after.eager - prepared.eager) == (prepared.captures + 1, 2)


# Memory of the emulated GPU, which counts allocations and can fail at any of them.


@pytest.mark.long
@emulated_only
def test_kv_8_no_step_asks_for_memory_of_the_device_or_shared_with_it(tmp_path: Path) -> None:
    """Runs start and end at every batch size, with everything that they may request."""
    model = model_on(EMULATED, tmp_path)
    engine = engine_over(model)
    (before, _), steps = _testing.emulated_gpu_pieces(model), engine.core.stats().n_steps
    assert before > 0
    for i in range(24):
        engine.generate(prompt(3 + i % 30, VOCABULARY, seed=i), max_outputs=3 + i % 9, **RUNS[i % len(RUNS)])
        engine.turn()
        if i % 8 == 7:
            engine.turn_until_idle()
    engine.turn_until_idle()
    assert engine.core.stats().n_steps - steps > 36
    assert _testing.emulated_gpu_pieces(model)[0] == before
    # Control: allocations are counted.
    again = model_on(EMULATED, tmp_path)
    assert _testing.emulated_gpu_pieces(model)[0] > before
    del again


@pytest.mark.long
@emulated_only
def test_y04_kv_5_any_allocation_that_fails_is_said_and_the_next_load_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails each allocation from the first weight to the last part of an engine; a failed load leaves nothing."""

    def outputs() -> list[int]:
        engine = engine_over(model_on(EMULATED, tmp_path))
        ticket = engine.generate(prompt(5, VOCABULARY), max_outputs=4)
        engine.turn_until_idle()
        return engine.tokens(ticket)

    witness = model_on(EMULATED, tmp_path)
    expected = outputs()
    _, before = _testing.emulated_gpu_pieces(witness)
    assert before > 0
    n_failed = 0
    while True:
        monkeypatch.setenv("IMP_EMULATED_GPU", f"failing_allocation={n_failed}")
        try:
            found = outputs()
        except _core.ResourceExhausted as error:
            assert error.reason == "NO_MEMORY", n_failed
            assert {"needed", "available"} <= error.details.keys()
            n_failed += 1
        else:
            break
        assert _testing.emulated_gpu_pieces(witness)[1] == before, n_failed
        monkeypatch.delenv("IMP_EMULATED_GPU")
        if n_failed % 4 == 0:
            assert outputs() == expected, n_failed
    assert n_failed > 5
    assert found == expected
