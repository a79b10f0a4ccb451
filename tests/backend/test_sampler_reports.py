"""The sampler's reports, and rows that it must accept or refuse."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.devices import BEST, DEVICES, GPUS
from support.kernels.sampler_requests import VOCAB, each_sampler, normal_rows, one, random_fields
from support.oracles import sampling_oracle as oracle
from support.oracles import tolerances


@each_sampler
def test_smp_16_d10_every_temperature_and_every_finite_row_is_safe(device: core.Device, fewer: int) -> None:
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
        for option in options if fewer == 1 else (options[int(temperature) % 5], options[5]):
            requests = [{"row": i, "temperature": temperature, "logprob": True, **option} for i in range(len(rows))]
            for status, token, logprob, _ in core.sample(device, rows, requests):
                assert status == "ok"
                assert 0 <= token < VOCAB
                assert logprob <= 0
    assert one(rows[8], device, temperature=1.0) == 40


@pytest.mark.long
@pytest.mark.parametrize("poison", ["nan", "+inf", "-inf", "all nan", "all -inf"])
def test_smp_17_d01_d02_a_row_that_is_not_finite_fails_alone(poison: str) -> None:
    rows = normal_rows(17, 4)
    value = np.float32(poison.removeprefix("all "))
    broken = rows.copy()
    broken[2, :] = np.where(poison.startswith("all"), value, broken[2])
    broken[2, VOCAB - 1] = value
    for device in [*DEVICES, *GPUS]:
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


@each_sampler
def test_smp_18_d17_masks_that_exclude_each_other_leave_no_candidate(device: core.Device, fewer: int) -> None:
    del fewer
    rows = normal_rows(18, 2)
    even = [i % 2 == 0 for i in range(VOCAB)]
    odd = [not allowed for allowed in even]
    for fields in ({"temperature": 0.0}, {}, {"top_p": 0.5}):
        results = core.sample(
            device, rows, [{"row": 0, "masks": [even, odd], **fields}, {"row": 1, "masks": [[], even, []], **fields}]
        )
        assert results[0][:2] == ("no_candidate", -1)
        assert results[1][0] == "ok"
        assert results[1][1] % 2 == 0


@each_sampler
def test_smp_22_d11_logprobs_are_of_the_raw_logits(device: core.Device, fewer: int) -> None:
    rows = np.concatenate(
        [normal_rows(22, 40 // min(fewer, 4)), normal_rows(23, 4, spread=0.01), normal_rows(24, 4, spread=40)]
    )
    wide = rows.astype(np.float64)
    exact = wide - wide.max(axis=1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    rng = np.random.default_rng(22)
    for option in ({"temperature": 0.0}, {"temperature": 2.0}, random_fields(rng, VOCAB), random_fields(rng, VOCAB)):
        requests = [{"row": i, "logprob": True, "n_candidates": 20, **option} for i in range(len(rows))]
        for i, (_, token, logprob, candidates) in enumerate(core.sample(device, rows, requests)):
            bound = tolerances.SAMPLER_LOGPROB * (1 + abs(exact[i, token]))
            assert abs(logprob - exact[i, token]) < min(bound, 1e-4)
            assert [found for found, _ in candidates] == oracle.order_of(rows[i])[:20].tolist()
            values = [value for _, value in candidates]
            assert values == sorted(values, reverse=True)
            assert sum(np.exp(values)) <= 1 + 1e-4
            assert all(value <= 0 for value in values)
            if option == {"temperature": 0.0}:
                assert (token, logprob) == candidates[0]
    scored = core.score(device, rows, [(3, 70), (5, 0)], n_candidates=2)
    for (row, token), (_, found, logprob, candidates) in zip([(3, 70), (5, 0)], scored, strict=True):
        assert found == token
        assert abs(logprob - exact[row, token]) < tolerances.SAMPLER_LOGPROB * (1 + abs(exact[row, token]))
        assert abs(logprob - exact[row, token - 1]) > 1e-3
        assert [candidate for candidate, _ in candidates] == oracle.order_of(rows[row])[:2].tolist()


@pytest.mark.long
def test_det_16_stale_scratch_does_not_matter() -> None:
    rng = np.random.default_rng(26)
    rows = normal_rows(26, 100, vocab=1500)
    requests = [{"row": i, "logprob": True, "n_candidates": 5, **random_fields(rng, 1500)} for i in range(100)]
    for device in (DEVICES[0], BEST, *GPUS):
        n = 100 if device not in GPUS else 12
        clean = core.sample(device, rows, requests[:n], scratch_fill=0x00)
        for value in (0x01, 0x3F, 0x7F, 0xFF):
            assert core.sample(device, rows, requests[:n], scratch_fill=value) == clean
