"""The sampler against its definition: draws, ties, cuts, reports, and rows that cannot be sampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support import sampling_oracle as oracle
from support import tolerances
from support.devices import BEST, DEVICES, ISAS

Array = np.ndarray
Fields = dict[str, Any]
VOCAB = 83  # no multiple of 16, of 32, or of a chunk


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


def draws(row: Array, n: int, **fields: Any) -> list[int]:
    """The draws of n output indices."""
    return tokens(BEST, row[None, :], [{"row": 0, "index": i, **fields} for i in range(n)])


def random_fields(rng: np.random.Generator, vocab: int) -> Fields:
    """Some of every option."""
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


def test_smp_2_the_generator_has_the_published_answers() -> None:
    ones = 0xFFFFFFFF
    assert core.philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert core.philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert core.draw_bits(0, 0, 0) == 0x6627E8D5E169C58D
    assert [core.draw_bits(7, 0, i) for i in range(3)] == [0xF4607A2DC009F9DC, 0x682E8E9BCB97BC13, 0x018E23C00229FBB4]
    assert core.draw_bits(7, 1, 0) == 0x2EC4F55D249EF5F4


def test_smp_1_smp_25_a_choice_depends_on_its_request_alone() -> None:
    """Every instruction set and number of threads, in any order and company: one id, and the rows are unchanged."""
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


def test_smp_25_large_rows_agree_on_every_instruction_set() -> None:
    """Rows of several mass blocks, where lists are gathered in part only."""
    rng = np.random.default_rng(2)
    rows = normal_rows(2, 6, vocab=40_001)
    requests = [{"row": i % 6, **random_fields(rng, 40_001)} for i in range(60)]
    reference = core.sample(DEVICES[0], rows, requests)
    for device in DEVICES[1:]:
        assert core.sample(device, rows, requests) == reference


def test_smp_3_greedy_is_the_adjusted_maximum_and_uses_no_randomness() -> None:
    rng = np.random.default_rng(3)
    rows = normal_rows(3, 1000)
    greedy, single = [], []
    for i in range(1000):
        fields = {**random_fields(rng, VOCAB), "row": i}
        greedy.append({**fields, "temperature": 0.0, "seed": 1})
        single.append({**fields, "top_k": 1, "seed": 2})
    chosen = tokens(BEST, rows, greedy)
    assert tokens(BEST, rows, single) == chosen
    assert chosen == [int(np.argmax(oracle.adjusted(rows[i], greedy[i]))) for i in range(1000)]
    assert chosen != np.argmax(rows, axis=1).tolist()
    assert one(rows[0], temperature=9.9e-5, seed=5) == one(rows[0], temperature=0.0)


def test_smp_4_d02_d10_ties_go_to_the_lowest_id() -> None:
    for device in DEVICES:
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
    assert set(draws(row_of(2, 2, 2, 2), 100, top_k=2)) == {0, 1}


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


def test_smp_7_off_values_are_off_and_edges_keep_one() -> None:
    rows = normal_rows(7, 300)
    base = [{"row": i, "seed": i, "temperature": 1.3} for i in range(300)]
    plain = tokens(BEST, rows, base)
    for off in (
        {"top_k": 0},
        {"top_k": VOCAB},
        {"top_k": VOCAB + 1},
        {"top_p": 1.0},
        {"min_p": 0.0},
        {"typical_p": 1.0},
    ):
        assert tokens(BEST, rows, [{**fields, **off} for fields in base]) == plain
    assert tokens(BEST, rows, [{**fields, "top_k": 3} for fields in base]) != plain
    best = np.argmax(rows, axis=1).tolist()
    for edge in ({"top_p": 1e-30}, {"top_p": 1e-45}, {"min_p": 1.0}):
        assert tokens(BEST, rows, [{**fields, **edge} for fields in base]) == best
    for row in rows[:20]:
        ids, weights = core.SamplerRow(ISAS[-1], row).support({})
        exact = np.exp(row.astype(np.float64) - row.max())
        assert ids == list(range(VOCAB))
        assert abs(sum(weights) / 2**40 / exact.sum() - 1) < tolerances.SAMPLER_CUT
    assert set(draws(np.zeros(16, np.float32), 400)) == set(range(16))


def filters(rng: np.random.Generator, vocab: int) -> Iterator[Fields]:
    """Each filter alone, pairs, and all."""
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


@pytest.mark.parametrize(("vocab", "n_rows"), [(VOCAB, 1000), (3000, 60)])
def test_smp_8_support_sets_are_exact(vocab: int, n_rows: int) -> None:
    rng = np.random.default_rng(vocab)
    compared, wrong_by_one = 0, 0
    for i, row in enumerate(normal_rows(vocab, n_rows, vocab)):
        sampler = core.SamplerRow(ISAS[i % len(ISAS)], row)
        for fields in filters(rng, vocab):
            expected, margin = oracle.kept(row, fields)
            if not oracle.decided(margin):
                continue
            ids, weights = sampler.support(fields)
            # Candidates of weight zero may be listed or not: they are never drawn. Near one unit float64 cannot tell.
            units = np.exp((row.astype(np.float64) - row.max()) / np.float32(fields["temperature"])) * 2**40
            compared += 1
            assert set(ids) - set(np.flatnonzero(units < 2)) == expected - set(np.flatnonzero(units < 2)), fields
            assert ids == sorted(ids)
            assert len(ids) == len(weights)
            wrong_by_one += expected != oracle.kept(row, {**fields, "top_k": max(1, len(expected) - 1)})[0]
    assert compared > 0.99 * 15 * n_rows
    assert wrong_by_one > 0.5 * compared, "the oracle must see one candidate missing"


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
                # The argument is rounded twice in float32, which counts in units of the argument.
                for token, weight in zip(ids, weights, strict=True):
                    argument = abs(float(row[token]) - float(row.max())) / temperature
                    bound = exact[token] * tolerances.rounding_of_sum(4) * (1 + argument) + 1
                    assert abs(weight - exact[token]) <= bound


def test_smp_9_a_total_near_two_to_the_62() -> None:
    vocab = 2**22
    row = np.zeros(vocab, np.float32)
    for isa in (ISAS[0], ISAS[-1]):
        sampler = core.SamplerRow(isa, row)
        for random in (0, 2**64 - 1, 2**64 // 3, 2**42 - 1, 2**42):
            assert sampler.choose({}, random) == random >> 42
            assert sampler.choose({"temperature": 2.0, "top_p": 0.5}, random) == random >> 43


def test_smp_10_repetition_penalty_acts_once_per_distinct_known_id() -> None:
    sampler = core.SamplerRow(ISAS[-1], row_of(2, -2, 1, 0))
    for history in ([0, 1, 3], [0, 0, 0, 1, 3], [0, 1, 3, 4, 99, -1]):
        fields = {"repetition_penalty": 2.0, "history": history}
        assert sampler.adjusted(fields).tolist() == [1, -4, 1, 0]
    assert sampler.adjusted({"repetition_penalty": 2.0, "history": [0, 1, 2], "penalty_window": 1}).tolist() == [
        2,
        -2,
        0.5,
        0,
    ]


def test_smp_11_at_one_the_repetition_penalty_is_a_no_op() -> None:
    row = row_of(-0.0, 1e-40, -1e-40, 3.4e38, -3.4e38, 0.0, 5)
    sampler = core.SamplerRow(ISAS[-1], row)
    history = [0, 1, 2, 3, 4, 5]
    bits = row.view(np.uint32).tolist()
    for fields in ({"repetition_penalty": 1.0, "history": history}, {"repetition_penalty": 3.0, "history": []}):
        assert sampler.adjusted(fields).view(np.uint32).tolist() == bits
    fields = {"repetition_penalty": 3.0, "history": [6, 0, 6]}
    assert (
        sampler.adjusted({**fields, "penalty_window": 0}).tolist()
        == sampler.adjusted({**fields, "penalty_window": 4}).tolist()
    )
    assert sampler.adjusted(fields).view(np.uint32).tolist() != bits


def test_smp_12_a_penalty_never_lifts_an_id_above_an_unpenalised_one() -> None:
    rng = np.random.default_rng(12)
    for row in normal_rows(12, 1000, vocab=10):
        history = rng.integers(0, 10, size=4).tolist()
        after = core.SamplerRow(ISAS[-1], row).adjusted(
            {"repetition_penalty": float(rng.uniform(1, 4)), "history": history}
        )
        said, unsaid = sorted(set(history)), sorted(set(range(10)) - set(history))
        assert not ((after[said][:, None] > after[unsaid]) & (row[said][:, None] <= row[unsaid])).any()


def test_smp_10_smp_13_smp_14_adjustments_equal_the_definition() -> None:
    rng = np.random.default_rng(13)
    changed = 0
    for i, row in enumerate(normal_rows(13, 1000)):
        fields = random_fields(rng, VOCAB)
        actual = core.SamplerRow(ISAS[i % len(ISAS)], row).adjusted(fields)
        np.testing.assert_array_equal(actual, oracle.adjusted(row, fields))
        changed += bool((actual != row).any())
    assert changed > 900


def test_smp_13_prompt_tokens_do_not_count_as_output() -> None:
    row = row_of(5, 5, 5, 5)
    sampler = core.SamplerRow(ISAS[-1], row)
    fields = {"history": [3, 3, 3, 1, 2, 1], "frequency_penalty": 0.5, "presence_penalty": 0.25}
    assert sampler.adjusted({**fields, "n_output": 3}).tolist() == [5, 3.75, 4.25, 5]
    assert sampler.adjusted({**fields, "n_output": 0}).tolist() == row.tolist()
    assert sampler.adjusted({**fields, "n_output": 3, "penalty_window": 1}).tolist() == [5, 4.25, 5, 5]


def test_smp_13_dry_penalises_what_would_lengthen_a_repeat() -> None:
    sampler = core.SamplerRow(ISAS[-1], np.zeros(10, np.float32))
    history = [1, 2, 3, 4, 9, 1, 2, 3]  # 4 would repeat "1 2 3"
    fields = {"history": history, "dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed_length": 2}
    assert sampler.adjusted(fields).tolist() == [0, 0, 0, 0, -2, 0, 0, 0, 0, 0]
    assert sampler.adjusted({**fields, "dry_allowed_length": 3})[4] == -1
    assert sampler.adjusted({**fields, "dry_allowed_length": 4})[4] == 0
    assert sampler.adjusted({**fields, "dry_breakers": [1]})[4] == -1
    assert sampler.adjusted({**fields, "dry_breakers": [2]})[4] == 0
    assert sampler.adjusted({**fields, "dry_window": 7})[4] == -1
    rng = np.random.default_rng(14)
    for _ in range(300):
        repetitive = {
            **fields,
            "history": rng.integers(0, 3, size=rng.integers(0, 60)).tolist(),
            "dry_window": int(rng.choice([0, 9])),
            "dry_breakers": [2] if rng.random() < 0.3 else [],
            "dry_allowed_length": int(rng.integers(0, 5)),
        }
        np.testing.assert_array_equal(
            sampler.adjusted(repetitive), oracle.adjusted(np.zeros(10, np.float32), repetitive)
        )


def test_smp_14_bias_comes_after_the_penalties() -> None:
    row = row_of(1, 4, 3, 2)
    fields = {"repetition_penalty": 2.0, "history": [1], "logit_bias": {1: 2.5, 0: -100.0}}
    assert core.SamplerRow(ISAS[-1], row).adjusted(fields).tolist() == [-99, 4.5, 3, 2]
    assert one(row, temperature=0.0, logit_bias={1: -100.0}) == 2


def test_smp_16_d10_every_temperature_and_every_finite_row_is_safe() -> None:
    rng = np.random.default_rng(16)
    rows = np.concatenate(
        [
            normal_rows(16, 4, spread=1e4),
            rng.choice(np.float32([3e38, -3e38, 3.4028235e38, -3.4028235e38]), size=(4, VOCAB)),
            np.eye(1, VOCAB, 40, dtype=np.float32) * np.float32(3e38),
        ]
    )
    options = [{}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.1}, {"typical_p": 0.6}]
    options.append({"repetition_penalty": 0.01, "history": list(range(VOCAB)), "logit_bias": {5: 100.0}})
    for temperature in (0.0, 1e-38, 1e-4, 1.0, 100.0):
        for option in options:
            requests = [{"row": i, "temperature": temperature, "logprob": True, **option} for i in range(len(rows))]
            for status, token, logprob, _ in core.sample(BEST, rows, requests):
                assert status == "ok"
                assert 0 <= token < VOCAB
                assert logprob <= 0
    assert one(rows[8], temperature=1.0) == 40


@pytest.mark.parametrize("poison", ["nan", "+inf", "-inf", "all nan", "all -inf"])
def test_smp_17_d01_d02_a_row_that_is_not_finite_fails_alone(poison: str) -> None:
    rows = normal_rows(17, 4)
    value = np.float32(poison.removeprefix("all "))
    broken = rows.copy()
    broken[2, :] = np.where(poison.startswith("all"), value, broken[2])
    broken[2, VOCAB - 1] = value
    for device in DEVICES:
        for fields in (
            {"temperature": 0.0},
            {},
            {"top_k": 5, "logprob": True, "n_candidates": 2},
            {"logit_bias": {VOCAB - 1: 1.0}},
        ):
            requests = [{"row": i, **fields} for i in range(4)]
            clean, found = core.sample(device, rows, requests), core.sample(device, broken, requests)
            assert found[2][:2] == ("non_finite", -1)
            assert [found[i] for i in (0, 1, 3)] == [clean[i] for i in (0, 1, 3)]
        assert [result[0] for result in core.score(device, broken, [(1, 3), (2, 3)])] == ["ok", "non_finite"]


def test_smp_18_d17_masks_that_exclude_each_other_leave_no_candidate() -> None:
    rows = normal_rows(18, 2)
    even = [i % 2 == 0 for i in range(VOCAB)]
    odd = [not allowed for allowed in even]
    for fields in ({"temperature": 0.0}, {}, {"top_p": 0.5}):
        results = core.sample(
            BEST, rows, [{"row": 0, "masks": [even, odd], **fields}, {"row": 1, "masks": [[], even, []], **fields}]
        )
        assert results[0][:2] == ("no_candidate", -1)
        assert results[1][0] == "ok"
        assert results[1][1] % 2 == 0


def test_smp_22_d11_logprobs_are_of_the_raw_logits() -> None:
    rows = np.concatenate([normal_rows(22, 40), normal_rows(23, 4, spread=0.01), normal_rows(24, 4, spread=40)])
    wide = rows.astype(np.float64)
    exact = wide - wide.max(axis=1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    rng = np.random.default_rng(22)
    for option in ({"temperature": 0.0}, {"temperature": 2.0}, random_fields(rng, VOCAB), random_fields(rng, VOCAB)):
        requests = [{"row": i, "logprob": True, "n_candidates": 20, **option} for i in range(len(rows))]
        for i, (_, token, logprob, candidates) in enumerate(core.sample(BEST, rows, requests)):
            bound = tolerances.LOGPROB * (1 + abs(exact[i, token]))
            assert abs(logprob - exact[i, token]) < min(bound, 1e-4)
            assert [found for found, _ in candidates] == oracle.order_of(rows[i])[:20].tolist()
            values = [value for _, value in candidates]
            assert values == sorted(values, reverse=True)
            assert sum(np.exp(values)) <= 1 + 1e-4
            assert all(value <= 0 for value in values)
            if option == {"temperature": 0.0}:
                assert (token, logprob) == candidates[0]
    scored = core.score(BEST, rows, [(3, 70), (5, 0)], n_candidates=2)
    for (row, token), (_, found, logprob, candidates) in zip([(3, 70), (5, 0)], scored, strict=True):
        assert found == token
        assert abs(logprob - exact[row, token]) < tolerances.LOGPROB * (1 + abs(exact[row, token]))
        assert abs(logprob - exact[row, token - 1]) > 1e-3
        assert [candidate for candidate, _ in candidates] == oracle.order_of(rows[row])[:2].tolist()


def test_smp_23_a_mask_restricts_the_draw_only() -> None:
    rng = np.random.default_rng(23)
    rows = normal_rows(25, 1000)
    masks = [(rng.random(VOCAB) < rng.uniform(0.02, 0.9)).tolist() for _ in rows]
    for mask in masks:
        mask[int(rng.integers(VOCAB))] = True
    requests = [{"row": i, "masks": [mask], "seed": i} for i, mask in enumerate(masks)]
    assert all(masks[i][token] for i, token in enumerate(tokens(BEST, rows, requests)))
    single = [[j == i % VOCAB for j in range(VOCAB)] for i in range(100)]
    requests = [{"row": i, "masks": [mask], "temperature": 2.0} for i, mask in enumerate(single)]
    assert tokens(BEST, rows, requests) == [i % VOCAB for i in range(100)]
    row = row_of(9, 5, 4, 1)
    allowed = [False, True, True, True]
    assert one(row, temperature=0.0, masks=[allowed]) == 1
    assert one(row, temperature=0.0, masks=[allowed], repetition_penalty=2.0, history=[1]) == 2


def test_det_16_stale_scratch_does_not_matter() -> None:
    rng = np.random.default_rng(26)
    rows = normal_rows(26, 100, vocab=1500)
    requests = [{"row": i, "logprob": True, "n_candidates": 5, **random_fields(rng, 1500)} for i in range(100)]
    for device in (DEVICES[0], BEST):
        clean = core.sample(device, rows, requests, scratch_fill=0x00)
        for value in (0x01, 0x3F, 0x7F, 0xFF):
            assert core.sample(device, rows, requests, scratch_fill=value) == clean
