"""The GPU's sampler against the CPU's: equal statuses, tokens, log-probabilities and candidates, to the last bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import BEST, GPU_KINDS, GPUS, ISAS, emulated_only
from support.kernels.sampler_requests import VOCAB, Array, Fields, normal_rows, random_fields
from support.oracles import sampling_oracle as oracle
from support.run.quick_run import Repeats

each_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda device: device.name.replace(" ", "_"))
MOST = np.finfo(np.float32).max


def awkward_rows(seed: int, vocab: int) -> Array:
    """Returns rows with ties, extremes, zeros of both signs, denormals, wide and narrow spreads, and NaN."""
    rng = np.random.default_rng(seed)
    normal = normal_rows(seed, 8, vocab)
    rows = [
        *normal,
        np.round(normal[0]),
        np.round(normal[1] / 4) * 4,
        np.full(vocab, -7.5),
        normal[2] * 0.001 + 20,
        normal[3] * 30,
        normal[4] * 1e4,
        rng.choice([3e38, -3e38, MOST, -MOST], size=vocab),
        rng.choice([0.0, -0.0, 1e-40, -1e-40, 1e-45, 1.2e-38, -1.2e-38], size=vocab),
        rng.choice([0.0, -0.0, 1.0], size=vocab),
        np.where(np.arange(vocab) % 97 == 96, -1e9, normal[5]),
        np.where(np.arange(vocab) == vocab // 2, np.nan, normal[6]),
        np.where(np.arange(vocab) == vocab - 1, -np.inf, normal[7]),
    ]
    return np.array(rows, np.float32)


def awkward_fields(rng: np.random.Generator, vocab: int) -> Fields:
    """Returns random options; sometimes one has a boundary value."""
    fields = random_fields(rng, vocab)
    edges: dict[str, list[Any]] = {
        "temperature": [0.0, 1e-38, 9.9e-5, 1e-4, 0.01, 30.0, 100.0],
        "top_k": [1, vocab - 1, 2**31 - 1],
        "top_p": [1e-45, 1e-30, 0.5, float(np.nextafter(np.float32(1), np.float32(0)))],
        "min_p": [1e-45, 1e-12, 1.0],
        "typical_p": [1e-30, 0.2, 0.999],
        "repetition_penalty": [0.01, 100.0],
        "frequency_penalty": [-2.0, 2.0, 1e-42],
        "dry_multiplier": [5.0],
        "logit_bias": [{int(token): 100.0 for token in rng.integers(0, vocab, size=3)}, {0: -100.0, vocab - 1: 1e-42}],
        "masks": [[(np.arange(vocab) % 3 == 0).tolist(), [], (np.arange(vocab) % 2 == 0).tolist()]],
    }
    for name, values in edges.items():
        if rng.random() < 0.12:
            fields[name] = values[int(rng.integers(len(values)))]
    if rng.random() < 0.06:
        fields["masks"] = [[False] * vocab]
    if rng.random() < 0.3:  # a history that repeats itself
        fields["history"] = rng.integers(0, min(vocab, 4), size=30).tolist()
        fields["n_output"] = 25
    fields["logprob"] = bool(rng.random() < 0.7)
    fields["n_candidates"] = int(rng.choice([0, 0, 1, 5, vocab, vocab + 2]))
    return fields


def bits_of(results: list[Any]) -> list[Any]:
    """Returns results with numbers as bits, so that NaN equals itself and the two zeros differ."""
    return [
        (
            status,
            token,
            np.float32(logprob).tobytes(),
            [(one, np.float32(value).tobytes()) for one, value in candidates],
        )
        for status, token, logprob, candidates in results
    ]


def awkward_requests(seed: int, rows: Array, n: int) -> list[Fields]:
    rng = np.random.default_rng(seed)
    return [{"row": i % len(rows), **awkward_fields(rng, rows.shape[1])} for i in range(n)]


@pytest.mark.long
@each_gpu
@pytest.mark.parametrize(("vocab", "n"), [(VOCAB, 140), (1, 8), (2, 16), (1500, 40), (5003, 16)])
def test_smp_25_the_device_samples_as_the_cpu_does(gpu: core.Device, vocab: int, n: int, repeats: Repeats) -> None:
    rows = awkward_rows(vocab, vocab)
    requests = awkward_requests(vocab, rows, max(repeats(n), min(n, len(rows))))
    expected = bits_of(core.sample(BEST, rows, requests))
    found = bits_of(core.sample(gpu, rows, requests))
    for request, one, other in zip(requests, found, expected, strict=True):
        assert one == other, {name: value for name, value in request.items() if name != "masks"}
    if vocab == VOCAB:
        assert {status for status, *_ in found} == {"ok", "non_finite", "no_candidate"}
    if vocab >= VOCAB:  # negative control: another draw is detected
        others = [{**request, "seed": request["seed"] + 1} for request in requests[:20]]
        assert bits_of(core.sample(gpu, rows, others)) != expected[:20]


@pytest.mark.long
@emulated_only
def test_smp_25_no_order_of_threads_changes_a_choice() -> None:
    rows = awkward_rows(31, 700)
    requests = awkward_requests(31, rows, 24)
    expected = bits_of(core.sample(BEST, rows, requests))
    device = core.Device(kind="cuda_emulated")
    for seed in (1, 2, 3):
        core.set_thread_order(device, seed)
        assert bits_of(core.sample(device, rows, requests)) == expected


@pytest.mark.long
@each_gpu
def test_smp_25_rows_without_any_spread_are_split_by_id(gpu: core.Device) -> None:
    """Bits that all logits share do not separate them, so lists are too long until ids separate them."""
    vocab = 2500
    flat = np.full(vocab, 3, np.float32)
    rows = np.stack([flat, np.where(np.arange(vocab) % 2 == 0, flat, np.float32(3.0000002))])
    options: list[Fields] = [{"top_k": 1300}, {"top_p": 0.7}, {"typical_p": 0.4}, {"top_k": 2000, "top_p": 0.9}]
    requests = [
        {"row": row, "seed": seed, "n_candidates": 1200, "temperature": temperature, **option}
        for row in range(2)
        for seed in range(2)
        for temperature in (1e-4, 1.0)
        for option in options
    ]
    assert bits_of(core.sample(gpu, rows, requests)) == bits_of(core.sample(BEST, rows, requests))
    top_k = [{"row": 0, "seed": seed, "top_k": 1300} for seed in range(20)]
    tokens = [token for _, token, *_ in core.sample(gpu, rows, top_k)]
    assert max(tokens) < 1300  # by the definition, the lowest ids among equal logits
    assert max(tokens) > 600


@pytest.mark.long
@each_gpu
def test_smp_25_draws_are_those_of_the_definition(gpu: core.Device) -> None:
    """Compares with the kept sets that SMP-8 proves and with draws in Python's integers."""
    rng = np.random.default_rng(41)
    rows = normal_rows(41, 60, vocab=300)
    requests, expected, all_lowest = [], [], []
    for i, row in enumerate(rows):
        fields: Fields = {"row": i, "seed": i, "index": 3, "temperature": float(rng.choice([0.4, 1, 2]))}
        fields |= [{}, {"top_k": 9}, {"top_p": 0.8}, {"min_p": 0.05}, {"typical_p": 0.6}][i % 5]
        ids, weights = core.SamplerRow(ISAS[0], row).support(fields)
        expected.append(oracle.draw(ids, weights, core.draw_bits(i, 0, 3)))
        all_lowest.append(oracle.draw(ids, weights, 0))
        requests.append(fields)
    assert [token for _, token, *_ in core.sample(gpu, rows, requests)] == expected != all_lowest


@each_gpu
def test_med_14_a_gpu_reads_histories_with_cells_of_media_as_the_cpu(gpu: core.Device) -> None:
    rng = np.random.default_rng(77)
    rows = normal_rows(77, 4, 60)
    cells = [core.LAST_MEDIA_TOKEN - 7] * 256
    fields = {
        "history": [*rng.integers(0, 60, 20).tolist(), *cells, *rng.integers(0, 3, 20).tolist(), *cells, 1, 2],
        "n_output": 40,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "dry_multiplier": 1.0,
        "dry_allowed_length": 1,
    }
    requests = [{"row": i, "seed": i, "n_candidates": 60, **fields} for i in range(4)]
    assert bits_of(core.sample(gpu, rows, requests)) == bits_of(core.sample(BEST, rows, requests))


@pytest.mark.long
@pytest.mark.parametrize("kind", GPU_KINDS)
def test_smp_25_more_than_a_round_holds(kind: str) -> None:
    """More requests than reserved rows, and long histories, take several rounds."""
    device = core.Device(kind=kind)  # a new device, because reserved memory stays reserved
    vocab = 6000
    rng = np.random.default_rng(51)
    rows = normal_rows(51, 2, vocab)
    long: Fields = {
        "history": rng.permutation(vocab).tolist(),
        "n_output": 5500,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "dry_multiplier": 1.0,
        "dry_allowed_length": 0,
        "logit_bias": {int(token): 1.0 for token in rng.permutation(vocab)[:1024]},
        "masks": [(rng.random(vocab) < 0.5).tolist()],
    }
    requests = [
        {"row": i % 2, "seed": i, "n_candidates": 4000 if i == 3 else 0, **(long if i < 3 else {})} for i in range(7)
    ]
    assert bits_of(core.sample(device, rows, requests)) == bits_of(core.sample(BEST, rows, requests))
    asked = [(i % 2, 100 * i) for i in range(9)]
    assert bits_of(core.score(device, rows, asked, 3)) == bits_of(core.score(BEST, rows, asked, 3))


@pytest.mark.long
@each_gpu
def test_smp_22_scores_are_the_cpus(gpu: core.Device) -> None:
    rows = awkward_rows(61, VOCAB)
    asked = [(row, (7 * row) % VOCAB) for row in range(len(rows))]
    for n_candidates in (0, 4, VOCAB + 5):
        found = core.score(gpu, rows, asked, n_candidates)
        assert bits_of(found) == bits_of(core.score(BEST, rows, asked, n_candidates))
    shifted = [(row, (token + 1) % VOCAB) for row, token in asked]
    assert bits_of(core.score(gpu, rows, shifted, 0)) != bits_of(core.score(gpu, rows, asked, 0))


def test_smp_8_shares_of_masses_are_exact() -> None:
    rng = np.random.default_rng(71)
    shares = [1e-45, 1e-38, 1e-30, 1e-20, 2.0**-32, 2.0**-33, 0.1, 0.5, 0.9, 1.0]
    shares += rng.random(200).tolist() + (2.0 ** rng.uniform(-100, 0, size=200)).tolist()
    for value in shares:
        p = np.float32(value)
        for total in (1, 2**40, 2**62 - 1, int(rng.integers(2**40, 2**62))):
            product = Fraction(float(p)) * total
            ceiling = -(-product.numerator // product.denominator)
            assert core.mass_share(p, total) == max(1, ceiling)
            assert core.mass_share(p, total) != max(1, ceiling) + 1
