"""The type that the cache has where nobody says: bfloat16 where most weights are quantized, float16 where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from imp_service import _core
from imp_service.config import load as load_config
from imp_service.core.load import load as load_model
from support.forward_runs import load
from support.tiny_models import tiny

QUANTIZED = ("bf16", "checkpoint", "quantized weights")
EXACT = ("f16", "architecture", "")


def cache_type(model: _core.Model) -> tuple[str, str, str]:
    (fact,) = (fact for fact in model.facts if fact["name"] == "kv_dtype")
    return fact["value"], fact["origin"], fact["source"]


@pytest.mark.parametrize(
    ("dtype", "embedding", "expected"),
    [
        ("q8_0", "", QUANTIZED),
        ("iq4_nl", "f16", QUANTIZED),
        ("f16", "", EXACT),
        ("bf16", "q8_0", EXACT),
        ("f32", "", EXACT),
    ],
)
def test_mod_10_the_cache_is_as_exact_as_most_weights(
    dtype: str, embedding: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    model = tiny(
        "qwen3", hidden_size=256, ffn_size=512, n_heads=4, n_kv_heads=2, head_dim=64, n_layers=2,
        dtype=dtype, embedding_dtype=embedding,
    )  # fmt: skip
    assert cache_type(load(model, tmp_path)) == expected
    assert cache_type(load(model, tmp_path, kv_dtype="f32")) == ("f32", "override", "override kv_dtype")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "bf16"),
        (["kv.dtype=f16"], "f16"),
        (["model.overrides.kv_dtype=f32"], "f32"),
    ],
)
def test_cfg_8_what_auto_became_is_reported(settings: list[str], expected: str) -> None:
    """The built-in model is quantized."""
    config = load_config(None, ["kv.bytes=4MiB", *settings], variables={})
    assert load_model(config).config.settings.kv.dtype == expected
