"""Adjustments of logits before a draw (penalties, DRY, bias and masks), against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import ISAS
from support.kernels.sampler_requests import VOCAB, each_sampler, normal_rows, one, random_fields, row_of, tokens
from support.oracles import sampling_oracle as oracle


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


def test_smp_12_a_penalty_never_lifts_an_id_above_an_unpenalized_one() -> None:
    rng = np.random.default_rng(12)
    for row in normal_rows(12, 10_000, vocab=10):
        history = rng.integers(0, 10, size=4).tolist()
        after = core.SamplerRow(ISAS[-1], row).adjusted(
            {"repetition_penalty": float(rng.uniform(1, 4)), "history": history}
        )
        said, unsaid = sorted(set(history)), sorted(set(range(10)) - set(history))
        assert not ((after[said][:, None] > after[unsaid]) & (row[said][:, None] <= row[unsaid])).any()


def test_med_14_cells_of_media_are_no_repeat_and_no_token_of_a_penalty() -> None:
    cells = [core.LAST_MEDIA_TOKEN - 7] * 256
    sampler = core.SamplerRow(ISAS[-1], np.ones(10, np.float32))
    fields = {"dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed_length": 2}
    # After equal cells 4 came before, which is no repeat; "1 2" is one, however many cells are before it.
    assert sampler.adjusted({**fields, "history": [*cells, 4, *cells]}).tolist() == [1] * 10
    repeat = sampler.adjusted({**fields, "history": [*cells, 1, 2, 3, *cells, 1, 2]})
    assert repeat.tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    tokens = sampler.adjusted({**fields, "history": [5] * 30})
    assert tokens[5] < 0, "equal tokens are a repeat"
    penalties = {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    assert sampler.adjusted({**penalties, "history": cells, "n_output": 256}).tolist() == [1] * 10


@pytest.mark.long
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


@each_sampler
def test_smp_14_bias_comes_after_the_penalties(device: core.Device, fewer: int) -> None:
    del fewer
    row = row_of(1, 4, 3, 2)
    fields = {"repetition_penalty": 2.0, "history": [1], "logit_bias": {1: 2.5, 0: -100.0}}
    assert core.SamplerRow(ISAS[-1], row).adjusted(fields).tolist() == [-99, 4.5, 3, 2]
    assert one(row, device, temperature=0.0, logit_bias={1: -100.0}) == 2
    assert one(row, device, temperature=0.0, **{**fields, "logit_bias": {0: 4.0}}) == 0


@pytest.mark.long
@each_sampler
def test_smp_23_a_mask_restricts_the_draw_only(device: core.Device, fewer: int) -> None:
    rng = np.random.default_rng(23)
    rows = normal_rows(25, 1000 // fewer)
    masks = [(rng.random(VOCAB) < rng.uniform(0.02, 0.9)).tolist() for _ in rows]
    for mask in masks:
        mask[int(rng.integers(VOCAB))] = True
    requests = [{"row": i, "masks": [mask], "seed": i} for i, mask in enumerate(masks)]
    assert all(masks[i][token] for i, token in enumerate(tokens(device, rows, requests)))
    single = [[j == i % VOCAB for j in range(VOCAB)] for i in range(len(rows))]
    requests = [{"row": i, "masks": [mask], "temperature": 2.0} for i, mask in enumerate(single)]
    assert tokens(device, rows, requests) == [i % VOCAB for i in range(len(rows))]
    row = row_of(9, 5, 4, 1)
    allowed = [False, True, True, True]
    assert one(row, device, temperature=0.0, masks=[allowed]) == 1
    assert one(row, device, temperature=0.0, masks=[allowed], repetition_penalty=2.0, history=[1]) == 2
