"""The trial of cache types at start: a type that ruins a model is refused with its figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

import imp_service
from imp_service import ConfigError, _core
from imp_service.generation.cache_trial import TRIAL_TOKENS, trial_text
from imp_service.generation.divergence import divergence
from imp_service.models import demo_model_path
from support.models.forward_runs import load, logits
from support.oracles import tolerances

TOKENS = np.random.default_rng(1).integers(300, 2000, 96).tolist()


@pytest.fixture(scope="module")
def with_outliers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model with two elements of each key 64 times as large, and those of queries as small."""
    path = tmp_path_factory.mktemp("outliers") / "m.gguf"
    shutil.copy(demo_model_path(), path)
    for tensor in GGUFReader(path, "r+").tensors:
        for name, factor in (("attn_k_norm", 64), ("attn_q_norm", 1 / 64)):
            if name in tensor.name:
                tensor.data[[3, 35]] *= np.float32(factor)
    return path


def test_kvq_15_a_type_that_ruins_the_model_is_refused_with_figures(with_outliers: Path) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(ConfigError) as refused:
            imp_service.load(with_outliers, "kv.dtype=rot4")
        assert refused.value.reason == "OVERRIDE_INVALID"
        messages.append(refused.value.message)
    assert messages[0] == messages[1], "two starts agree"
    assert messages[0].startswith("kv.dtype: rot4 changes this model too much: on a text of 256 tokens")
    assert messages[0].endswith('Set kv.dtype = "rot8/rot4", or kv.trial = false')
    with pytest.raises(
        ConfigError, match=r'model.overrides.kv_dtype: rot4 .*Set model.overrides.kv_dtype = "rot8/rot4"'
    ):
        imp_service.load(with_outliers, "model.overrides.kv_dtype=rot4")


def test_kvq_12_kvq_15_types_of_layers_are_tried(with_outliers: Path) -> None:
    layers = 'model.overrides.kv_layers."0-2"=rot4'
    with pytest.raises(
        ConfigError, match=r"model.overrides.kv_layers: mixed changes .* Set types of more bits, or kv.t"
    ):
        imp_service.load(with_outliers, "kv.dtype=bf16", layers)
    with imp_service.load(with_outliers, "kv.dtype=rot4", 'model.overrides.kv_layers."0--1"=rot8/rot3') as model:
        assert model._runtime.cache_trial.divergence > 0


@pytest.mark.parametrize("settings", [("kv.dtype=q8_0/rot4",), ("kv.dtype=rot4", "kv.trial=false"), ("kv.dtype=q8_0",)])
def test_kvq_15_what_passes_or_is_not_tried_serves(with_outliers: Path, settings: tuple[str, ...]) -> None:
    with imp_service.load(with_outliers, *settings) as model:
        assert (model._runtime.cache_trial is None) == (settings != ("kv.dtype=q8_0/rot4",))
        assert model.generate("A short text", max_tokens=3).result().token_ids


def test_kvq_15_the_built_in_model_bears_rot4() -> None:
    with imp_service.load(None, "kv.dtype=rot4") as model:
        assert 0 < model._runtime.cache_trial.divergence < 0.1
    with imp_service.load(None, "kv.dtype=rot4", "limits.max_context=40") as model:
        assert model._runtime.cache_trial.divergence > 0


def test_kvq_15_the_text_is_long_enough_for_large_vocabularies() -> None:
    assert len(trial_text().encode()) > 4.5 * TRIAL_TOKENS


@pytest.mark.parametrize("kv_dtype", ["bf16", "rot4", "q8_0/rot4"])
def test_kvq_15_the_figures_equal_those_of_the_logits(kv_dtype: str, tmp_path: Path) -> None:
    model = load(demo_model_path(), tmp_path, max_context=128)
    found = model.try_cache_types(TOKENS, n_judged=41, kv_dtype=kv_dtype)
    exact, tried = (
        logits(load(demo_model_path(), tmp_path, max_context=128, kv_dtype=each), TOKENS)[-41:-1]
        for each in ("f32", kv_dtype)
    )
    pairs = list(zip(exact, tried, strict=True))
    assert found.divergence == pytest.approx(
        np.mean([divergence(*pair) for pair in pairs]), rel=tolerances.MEAN_DIVERGENCE
    )
    assert found.same_top == pytest.approx(np.mean([a.argmax() == b.argmax() for a, b in pairs]))
    for rows, nats in ((exact, found.f32_nats), (tried, found.nats)):
        wide = rows.astype(np.float64)
        wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
        assert nats == pytest.approx(-np.mean([row[i] for row, i in zip(wide, TOKENS[-40:], strict=True)]))
    # Negative control: the divergence in the other direction.
    assert found.divergence != pytest.approx(
        np.mean([divergence(b, a) for a, b in pairs]), rel=tolerances.MEAN_DIVERGENCE
    )


def test_kvq_15_a_chunk_of_one_row_gives_the_same_figures(tmp_path: Path) -> None:
    whole, rows = (
        load(demo_model_path(), tmp_path, max_context=128, max_rows=n).try_cache_types(
            TOKENS, n_judged=41, kv_dtype="rot4"
        )
        for n in (64, 3)
    )
    assert whole.divergence == rows.divergence


def test_kvq_15_wrong_arguments_are_refused(tmp_path: Path) -> None:
    model = load(demo_model_path(), tmp_path, max_context=128)
    for tokens, n_judged in ((TOKENS, 1), (TOKENS, 97), ([5] * 129, 10), ([5, -1], 2), ([5, 2**20], 2)):
        with pytest.raises(_core.InvalidArgument):
            model.try_cache_types(tokens, n_judged=n_judged, kv_dtype="rot4")
    with pytest.raises(_core.InvalidArgument, match=r"kv_dtype: q4_0, expected one of f32, .* rot2, or two"):
        model.try_cache_types(TOKENS, n_judged=9, kv_dtype="q4_0")
