"""Types of the cache by layer: what they change in a model, and ranges that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service.models import demo_model_path
from support.models.forward_runs import load, logits, overrides, prompt
from support.models.tiny_models import tiny

TOKENS = prompt(40, 2000)
MANY = [(str(i), "f16") for i in range(65)]


def test_kvq_12_each_layer_counts_for_itself(tmp_path: Path) -> None:
    def run(**changes: Any) -> np.ndarray:
        return logits(load(demo_model_path(), tmp_path, **changes), TOKENS)

    f32, rot4 = run(kv_dtype="f32"), run(kv_dtype="rot4")
    np.testing.assert_array_equal(run(kv_dtype="f32", kv_layers=[("0--1", "rot4")]), rot4)
    np.testing.assert_array_equal(run(kv_dtype="rot4", kv_layers=[("0-1", "f32"), ("-2--1", "f32")]), f32)
    single = [run(kv_dtype="f32", kv_layers=[(str(i), "rot4")]) for i in range(4)]
    found = [f32, rot4, *single]
    assert all(not np.array_equal(a, b) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        *(
            ([(word, "rot4")], [f'kv_layers."{word}" = rot4: expected a range such as "0-1", "0" or "-2--1"'])
            for word in ["4", "-5", "0-4", "2-1", "-1--2", "-", "0-", "a", "0-1-2", "0--", "+1", "99999999999"]
        ),
        ([("3", "rot4"), ("-1", "f16")], ['"-1" = f16: kv_layers."3" = rot4 is as wide and names the same layer']),
        ([("0-1", "q8_0"), ("1-2", "q8_0/rot4")], ['"1-2" = q8_0/rot4: kv_layers."0-1" = q8_0 is as wide']),
        (MANY, ["kv_layers: 65 ranges, expected at most 64"]),
    ],
)  # fmt: skip
def test_kvq_12_ranges_that_do_not_fit_are_refused(
    ranges: list[tuple[str, str]], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(_core.ModelError) as refused:
        load(demo_model_path(), tmp_path, kv_layers=ranges)
    assert refused.value.reason == "OVERRIDE_INVALID"
    assert str(refused.value).endswith("for the cache's 4 layers")
    for word in words:
        assert word in str(refused.value)


def test_kvq_7_kvq_12_types_of_layers_are_checked_like_others(tmp_path: Path) -> None:
    with pytest.raises(
        _core.ModelError, match="override kv_layers: q8_0 with head_dim 8, expected head_dim a multiple"
    ):
        load(tiny("llama"), tmp_path, kv_layers=[("1", "q8_0")])
    with pytest.raises(_core.ModelError, match="override kv_layers: q4_0, known are f32, "):
        overrides(kv_layers=[("1", "q4_0")])
    with pytest.raises(_core.ModelError, match="layers of one size and type on cuda"):
        load(tiny("llama"), tmp_path, device="cuda_emulated", kv_dtype="f16", kv_layers=[("1", "bf16")])
