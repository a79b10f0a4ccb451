"""Output is a function of prompt, options and seed, on real models: no bit of a logit depends on anything else.

On the CPU, and on GPUs in deterministic mode.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from support.engine.model_engine import ModelEngine
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import load
from support.models.forward_runs import prompt as random_prompt
from support.models.tiny_models import FAMILIES, TinyModel, tiny
from support.oracles.script_oracle import Sampler

SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.8, seed=7),
    Sampler(temperature=1.2, seed=5, repetition_penalty=1.3, presence_penalty=0.5),
    Sampler(temperature=0.6, seed=2, frequency_penalty=0.7, logit_bias={3: -4.0, 9: 1.5}),
]


@dataclasses.dataclass
class Models:
    """One model on one device, and how much is asked of it."""

    source: Path
    device: str
    # By number of threads.
    loaded: dict[int, Any] = dataclasses.field(default_factory=dict)

    @property
    def threads(self) -> tuple[int, ...]:
        return (1, 2, 3) if self.device == "cpu" else (1,)

    @property
    def n_requests(self) -> int:
        return 6 if self.device == "cpu" else 4

    @property
    def n_engines(self) -> int:
        return 5 if self.device == "cpu" else 2

    @property
    def pressure(self) -> tuple[int, dict[str, int]]:
        """Outputs, and the options of an engine that has not the blocks for those of all requests."""
        if self.device == "cpu":
            return 60, {"n_blocks": 14, "max_context": 200}
        return 28, {"n_blocks": 5, "max_context": 64}

    def __call__(self, threads: int) -> Any:
        if threads not in self.loaded:
            self.loaded[threads] = self.load(threads)
        return self.loaded[threads]

    def load(self, threads: int = 1, **changes: Any) -> Any:
        mode = {} if self.device == "cpu" else {"deterministic": True}
        return load(self.source, self.source.parent, device=self.device, threads=threads, **mode, **changes)


def source_for(device: str, family: str) -> TinyModel:
    """On GPUs of weights whose kernels for one row and for several are not the same."""
    if device == "cpu":
        return tiny(family)
    return tiny(family, dtype="q8_0", hidden_size=64, ffn_size=64, n_heads=4, head_dim=16, n_layers=2)


# The other families repeat on the CPU what these show.
QUICK = [("cpu", family) for family in ("llama", "qwen3", "gemma2", "qwen35")]


@pytest.fixture(
    scope="module",
    params=[*(("cpu", family) for family in FAMILIES), *((gpu, "qwen3") for gpu in GPU_KINDS)],
    ids="-".join,
)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Models:
    device, family = request.param
    return Models(source_for(device, family).write(tmp_path_factory.mktemp(family) / "m.gguf"), device)


def options(sampler: Sampler) -> _core.SamplingOptions:
    return _core.SamplingOptions(**sampler.options())


@pytest.fixture(scope="module")
def alone(models: Models) -> list[tuple[list[int], int, Sampler, list[bytes], list[int]]]:
    """Requests, each with its logits and outputs when it runs alone, whole, and without a cache."""
    engine = ModelEngine(models(1), prefix_cache=False)
    known = []
    for i in range(models.n_requests):
        prompt, n, sampler = random_prompt(5 + 23 * i, 51, 1 + i % 2), 4 + i, SAMPLERS[i % 4]
        ticket = engine.generate(prompt, n, sampling=options(sampler), logits=True)
        known.append((prompt, n, sampler, engine.rows(ticket), engine.outputs(ticket)))
    assert len({tuple(outputs) for *_, outputs in known}) == models.n_requests
    return known


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_det_1_det_2_det_3_det_4_det_13_batches_chunks_cache_and_threads_change_no_bit(
    models: Models, alone: Any, chunk: int
) -> None:
    for threads in models.threads:
        engine = ModelEngine(models(threads), prefill_chunk=chunk)
        for _ in range(2):  # the second time from the cache
            tickets = [engine.generate(p, n, sampling=options(s), logits=True) for p, n, s, *_ in alone]
            for ticket, (*_, rows, outputs) in zip(tickets, alone, strict=True):
                assert engine.outputs(ticket) == outputs
                assert engine.rows(ticket) == rows
        stats = engine.core.stats()
        assert stats.n_cached_tokens > 0
        assert chunk < 64 or stats.n_steps < stats.n_decode_rows


@pytest.mark.sweep(quick=lambda models: models in QUICK)
def test_det_5_det_13_sch_4_preemption_under_pressure_changes_no_bit(models: Models, alone: Any) -> None:
    """A pool that the requests outgrow: some are preempted, all are as alone."""
    n, small = models.pressure
    engine = ModelEngine(models(models.threads[-1]), prefix_cache=False, **small)
    tickets = [engine.generate(p[:10], n, sampling=options(s), logits=True) for p, _, s, *_ in alone]
    got = [(engine.outputs(ticket), engine.rows(ticket)) for ticket in tickets]
    assert engine.core.stats().n_preemptions > 0
    del engine  # a model serves one at a time
    large = ModelEngine(models(1))
    for (outputs, rows), (p, _, s, *_) in zip(got, alone, strict=True):
        ticket = large.generate(p[:10], n, sampling=options(s), logits=True)
        assert (large.outputs(ticket), large.rows(ticket)) == (outputs, rows)


def test_gen_4_gen_23_ses_9_det_13_steps_and_generations_agree_bit_for_bit(models: Models, alone: Any) -> None:
    engine = ModelEngine(models(1))
    for prompt, n, sampler, rows, outputs in alone:
        session = engine.open(sampling=options(sampler))
        tickets = [engine.run(session, prompt[: len(prompt) // 2], 0)]
        engine.wait(*tickets)
        got_rows, got = [], []
        for i in range(n):
            ticket = engine.run(
                session, prompt[len(prompt) // 2 :] if i == 0 else [], logits=True, base=len(prompt) if i == 0 else None
            )
            got += engine.outputs(ticket)
            got_rows += engine.rows(ticket)
        assert (got, got_rows) == (outputs, rows)


@pytest.mark.long
def test_det_8_mod_21_engines_come_and_go_on_one_model(models: Models, alone: Any) -> None:
    prompt, n, sampler, rows, outputs = alone[2]
    for _ in range(models.n_engines):
        engine = ModelEngine(models(1))
        ticket = engine.generate(prompt, n, sampling=options(sampler), logits=True)
        assert (engine.outputs(ticket), engine.rows(ticket)) == (outputs, rows)
        del engine


@pytest.mark.sweep(quick=lambda models: models in QUICK)
def test_det_8_det_18_two_engines_do_not_influence_each_other(models: Models, alone: Any) -> None:
    """Two models of one file, another rope in the second, run at the same time."""
    engines = [ModelEngine(models.load()), ModelEngine(models.load(rope_theta=500.0))]
    solo = ModelEngine(models.load(rope_theta=500.0))
    tickets = [[e.generate(p, n, sampling=options(s), logits=True) for p, n, s, *_ in alone[-2:]] for e in engines]
    for i, (p, n, s, rows, outputs) in enumerate(alone[-2:]):
        assert (engines[0].outputs(tickets[0][i]), engines[0].rows(tickets[0][i])) == (outputs, rows)
        expected = solo.generate(p, n, sampling=options(s), logits=True)
        assert engines[1].rows(tickets[1][i]) == solo.rows(expected)
        assert engines[1].rows(tickets[1][i]) != rows
