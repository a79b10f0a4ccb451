"""The sampler's draws: generator, greedy, ties, kept sets, and unbounded integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import BEST, DEVICES, GPUS, ISAS
from support.kernels.sampler_requests import (
    VOCAB,
    Fields,
    draws,
    each_sampler,
    normal_rows,
    one,
    random_fields,
    row_of,
    tokens,
)
from support.oracles import sampling_oracle as oracle
from support.oracles import tolerances
from support.run.quick_run import Repeats


def test_smp_2_the_generator_has_the_published_answers() -> None:
    ones = 0xFFFFFFFF
    assert core.philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert core.philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert core.draw_bits(0, 0, 0) == 0x6627E8D5E169C58D
    assert [core.draw_bits(7, 0, i) for i in range(3)] == [0xF4607A2DC009F9DC, 0x682E8E9BCB97BC13, 0x018E23C00229FBB4]
    assert core.draw_bits(7, 1, 0) == 0x2EC4F55D249EF5F4


def test_smp_1_smp_25_a_choice_depends_on_its_request_alone() -> None:
    """Every instruction set, number of threads, order and batch gives the same id and leaves the rows unchanged."""
    rng = np.random.default_rng(1)
    rows = normal_rows(1, 250)
    requests = [{"row": i, "logprob": True, "n_candidates": 3, **random_fields(rng, VOCAB)} for i in range(250)] * 2
    reference = core.sample(DEVICES[0], rows, requests)
    assert reference[:250] == reference[250:]
    for device in DEVICES:
        assert core.sample(device, rows, requests) == reference
        assert core.sample(device, rows, requests[::-1]) == reference[::-1]
    alone = [core.sample(BEST, rows, [request])[0] for request in requests[:50]]
    assert alone == reference[:50]
    shifted = core.sample(BEST, rows, [{**request, "index": (request["index"] + 1) % 2**32} for request in requests])
    assert shifted != reference


@pytest.mark.long
def test_smp_25_large_rows_agree_on_every_instruction_set() -> None:
    """Uses rows of several mass blocks, whose lists are gathered only in part."""
    rng = np.random.default_rng(2)
    rows = normal_rows(2, 6, vocab=40_001)
    requests = [{"row": i % 6, **random_fields(rng, 40_001)} for i in range(60)]
    reference = core.sample(DEVICES[0], rows, requests)
    for device in DEVICES[1:]:
        assert core.sample(device, rows, requests) == reference


@each_sampler
def test_smp_3_greedy_is_the_adjusted_maximum_and_uses_no_randomness(device: core.Device, fewer: int) -> None:
    rng = np.random.default_rng(3)
    n = 1000 // fewer
    rows = normal_rows(3, n)
    greedy, single = [], []
    for i in range(n):
        fields = {**random_fields(rng, VOCAB), "row": i}
        greedy.append({**fields, "temperature": 0.0, "seed": 1})
        single.append({**fields, "top_k": 1, "seed": 2})
    chosen = tokens(device, rows, greedy)
    assert tokens(device, rows, single) == chosen
    assert chosen == [int(np.argmax(oracle.adjusted(rows[i], greedy[i]))) for i in range(n)]
    assert chosen != np.argmax(rows, axis=1).tolist()
    assert one(rows[0], device, temperature=9.9e-5, seed=5) == one(rows[0], device, temperature=0.0)


def test_smp_4_d02_d10_ties_go_to_the_lowest_id() -> None:
    for device in [*DEVICES, *GPUS]:
        assert one(row_of(1, 3, 3, 2), device, temperature=0.0) == 1
        assert one(row_of(-0.0, 0.0, -1), device, temperature=0.0) == 0
        assert one(np.full(VOCAB, 7, np.float32), device, temperature=0.0) == 0
    flat = np.full(VOCAB, 2, np.float32)
    for fields, ids in (
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.1}, list(range(9))),
        ({"top_k": 20, "top_p": 0.5}, list(range(10))),
        ({"min_p": 1.0}, list(range(VOCAB))),
        ({"typical_p": 0.1}, list(range(9))),
    ):
        for isa in ISAS:
            assert core.SamplerRow(isa, flat).support(fields)[0] == ids
    for device in [BEST, *GPUS]:
        assert set(draws(row_of(2, 2, 2, 2), 20, device, top_k=2)) == {0, 1}


def test_smp_6_d02_every_index_has_a_fresh_uniform_draw() -> None:
    flat = np.full(16, 1.5, np.float32)
    assert len(set(draws(flat, 64))) > 8
    many = draws(flat, 10_000, seed=11)
    expected = len(many) / 16
    statistic = sum((many.count(token) - expected) ** 2 for token in range(16)) / expected
    limit = tolerances.chi_square_limit(degrees=15, normal_quantile=2.3263)
    assert statistic < limit
    halves = [token // 2 for token in many]  # negative control: a generator that never gives half of the ids
    assert sum((halves.count(token) - expected) ** 2 for token in range(16)) / expected > limit
    assert draws(flat, 50, seed=1) != draws(flat, 50, seed=2)
    assert draws(flat, 50, sequence=0) != draws(flat, 50, sequence=1)


@each_sampler
def test_smp_7_off_values_are_off_and_edges_keep_one(device: core.Device, fewer: int) -> None:
    n = 300 // fewer
    rows = normal_rows(7, n)
    base = [{"row": i, "seed": i, "temperature": 1.3} for i in range(n)]
    plain = tokens(device, rows, base)
    for off in (
        {"top_k": 0},
        {"top_k": VOCAB},
        {"top_k": VOCAB + 1},
        {"top_p": 1.0},
        {"min_p": 0.0},
        {"typical_p": 1.0},
    ):
        assert tokens(device, rows, [{**fields, **off} for fields in base]) == plain
    assert tokens(device, rows, [{**fields, "top_k": 3} for fields in base]) != plain
    best = np.argmax(rows, axis=1).tolist()
    for edge in ({"top_p": 1e-30}, {"top_p": 1e-45}, {"min_p": 1.0}):
        assert tokens(device, rows, [{**fields, **edge} for fields in base]) == best
    for row in rows[:20]:
        ids, weights = core.SamplerRow(ISAS[-1], row).support({})
        exact = np.exp(row.astype(np.float64) - row.max())
        assert ids == list(range(VOCAB))
        assert abs(sum(weights) / 2**40 / exact.sum() - 1) < tolerances.SAMPLER_CUT
    assert set(draws(np.zeros(16, np.float32), 150, device)) == set(range(16))


def filters(rng: np.random.Generator, vocab: int) -> Iterator[Fields]:
    """Yields every combination of the filters."""
    for chosen in range(1, 16):
        fields: Fields = {"temperature": float(rng.choice([0.5, 1.0, 1.8]))}
        if chosen & 1:
            fields["top_k"] = int(rng.integers(1, vocab))
        if chosen & 2:
            fields["top_p"] = float(rng.uniform(0.05, 0.99))
        if chosen & 4:
            fields["min_p"] = float(rng.uniform(0.001, 0.5))
        if chosen & 8:
            fields["typical_p"] = float(rng.uniform(0.1, 0.95))
        yield fields


@pytest.mark.long
@pytest.mark.parametrize(("vocab", "n_rows"), [(VOCAB, 1000), (3000, 60)])
def test_smp_8_support_sets_are_exact(vocab: int, n_rows: int, repeats: Repeats) -> None:
    n_rows = repeats(n_rows)
    rng = np.random.default_rng(vocab)
    compared, wrong_by_one = 0, 0
    for i, row in enumerate(normal_rows(vocab, n_rows, vocab)):
        sampler = core.SamplerRow(ISAS[i % len(ISAS)], row)
        for fields in filters(rng, vocab):
            expected, margin = oracle.kept(row, fields)
            if not oracle.decided(margin):
                continue
            ids, weights = sampler.support(fields)
            # Candidates of weight zero may be listed or not: they are never drawn. Near one unit float64 cannot decide.
            units = np.exp((row.astype(np.float64) - row.max()) / np.float32(fields["temperature"])) * 2**40
            compared += 1
            assert set(ids) - set(np.flatnonzero(units < 2)) == expected - set(np.flatnonzero(units < 2)), fields
            assert ids == sorted(ids)
            assert len(ids) == len(weights)
            wrong_by_one += expected != oracle.kept(row, {**fields, "top_k": max(1, len(expected) - 1)})[0]
    assert compared > 0.99 * 15 * n_rows
    assert wrong_by_one > 0.5 * compared, "the oracle must see one candidate missing"


@pytest.mark.long
@each_sampler
def test_smp_8_what_is_drawn_is_of_the_exact_set(device: core.Device, fewer: int) -> None:
    rng = np.random.default_rng(8)
    rows = normal_rows(8, 40, vocab=300)
    kept, requests = [], []
    for i, row in enumerate(rows[: 40 // min(fewer, 8)]):
        for fields in filters(rng, 300):
            expected, margin = oracle.kept(row, fields)
            if not oracle.decided(margin):
                continue
            kept.append((i, expected))
            requests.append({**fields, "row": i, "seed": len(requests)})
    drawn = tokens(device, rows, requests)
    assert all(token in expected for token, (_, expected) in zip(drawn, kept, strict=True))
    rotated = [*drawn[1:], drawn[0]]  # negative control: draws from other sets are detected
    assert not all(token in expected for token, (_, expected) in zip(rotated, kept, strict=True))
    few, _ = oracle.kept(rows[0], {"top_k": 5, "temperature": 3.0})
    assert set(draws(rows[0], 100, device, top_k=5, temperature=3.0)) == few


@pytest.mark.long
def test_smp_9_draws_are_those_of_unbounded_integers() -> None:
    rng = np.random.default_rng(9)
    extremes = [0, 1, 2**63, 2**64 - 1]
    for i, row in enumerate(normal_rows(9, 400, spread=6)):
        fields: Fields = {"temperature": float(rng.choice([0.3, 1, 40])), "top_p": float(rng.choice([1, 0.8]))}
        if i % 3 == 0:
            fields["masks"] = [(rng.random(VOCAB) < 0.3).tolist()]
        sampler = core.SamplerRow(ISAS[i % len(ISAS)], row)
        ids, weights = core.SamplerRow(ISAS[0], sampler.adjusted(fields)).support({**fields, "masks": []})
        for random in [*extremes, *(int(word) for word in rng.integers(0, 2**64, size=21, dtype=np.uint64))]:
            chosen = sampler.choose(fields, random)
            assert chosen == oracle.draw(ids, weights, random)
            assert weights[ids.index(chosen)] > 0
            if "masks" in fields:
                assert fields["masks"][0][chosen]


def test_smp_9_weights_are_those_of_the_definition() -> None:
    for spread in (0.1, 3, 30):
        for row in normal_rows(10, 50, spread=spread):
            for temperature in (0.5, 1.0, 7.0):
                ids, weights = core.SamplerRow(ISAS[-1], row).support({"temperature": temperature})
                exact = oracle.integer_weights(row, temperature)
                assert max(weights) == 2**40
                # The argument is rounded twice in float32, relative to the argument.
                for token, weight in zip(ids, weights, strict=True):
                    argument = abs(float(row[token]) - float(row.max())) / temperature
                    bound = exact[token] * tolerances.rounding_of_sum(4) * (1 + argument) + 1
                    assert abs(weight - exact[token]) <= bound


@pytest.mark.long
def test_smp_9_a_total_near_two_to_the_62() -> None:
    vocab = 2**22
    row = np.zeros(vocab, np.float32)
    for isa in (ISAS[0], ISAS[-1]):
        sampler = core.SamplerRow(isa, row)
        for random in (0, 2**64 - 1, 2**64 // 3, 2**42 - 1, 2**42):
            assert sampler.choose({}, random) == random >> 42
            assert sampler.choose({"temperature": 2.0, "top_p": 0.5}, random) == random >> 43
