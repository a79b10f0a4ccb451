"""The sampler that a model file recommends, in llama.cpp's terms. A bad one never prevents a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions
from imp_service.config.overrides import DefaultSampling
from imp_service.generation.defaults import IMP, OFF, OWN, default_sampling, in_force, sampling_warnings
from support.files.gguf_writer import F32, I32, Key
from support.machine.command_line import demo_with_keys

BASE = "general.sampling."


def changed(**said: Any) -> dict[str, float]:
    """Returns the fields that these keys of a file change from off. The file also recommends a draw."""
    draw = {"temp": 1.0} | said
    found = default_sampling({BASE + name: value for name, value in draw.items()}, DefaultSampling()).options
    return {name: getattr(found, name) for name in OFF if getattr(found, name) != OFF[name]}


def warned(**said: Any) -> list[str]:
    return sampling_warnings({BASE + name: value for name, value in said.items()}, DefaultSampling())


def test_smp_27_what_a_file_recommends_is_taken() -> None:
    said = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "penalty_repeat": 1.1, "penalty_last_n": 64}
    assert list(changed(**said).values()) == [0.6, 20, 0.95, 0.05, 1.1, 64]
    assert changed(top_k=20.0) == {"top_k": 20}
    assert warned(**said) == warned(top_k=20.0) == []


def test_smp_27_llama_cpp_s_words_for_off_and_for_all_mean_the_same_here() -> None:
    for said in ({"top_k": -1}, {"top_k": 0}, {"penalty_last_n": -1}, {"top_p": 1.0}):
        assert (changed(**said), warned(**said)) == ({}, [])
    assert changed(penalty_last_n=-1, penalty_repeat=1.1) == {"repetition_penalty": 1.1}
    # A window of 0 tokens penalises nothing, whereas our 0 means all tokens.
    assert changed(penalty_last_n=0, penalty_repeat=1.1) == {}
    assert changed(temp=-1.0) == {"temperature": 0}
    assert warned(penalty_last_n=0, penalty_repeat=1.1, temp=-1.0) == []


def test_smp_27_a_penalty_holds_only_over_a_window_that_is_known() -> None:
    unfit = {BASE + "penalty_last_n": -2, BASE + "penalty_repeat": 1.5}
    assert default_sampling(unfit, DefaultSampling()).options.repetition_penalty == 1.0
    assert sampling_warnings(unfit, DefaultSampling()) == [
        f"{BASE}penalty_last_n: -2, expected 0 to {2**32 - 1}; not used, nor is {BASE}penalty_repeat"
    ]
    none = {**unfit, BASE + "penalty_last_n": 0}
    for metadata in (unfit, none):
        window = default_sampling(metadata, DefaultSampling(penalty_window=64)).options
        assert (window.repetition_penalty, window.penalty_window) == (1.5, 64)
        assert sampling_warnings(metadata, DefaultSampling(penalty_window=64)) == []
        kept = default_sampling(metadata, DefaultSampling(repetition_penalty=1.2)).options
        assert kept.repetition_penalty == 1.2


def test_smp_27_samplers_that_imp_lacks_are_reported_together() -> None:
    assert changed(xtc_probability=0.5, mirostat=2, top_k=7) == {"top_k": 7}
    assert warned(xtc_probability=0.5, mirostat=2, top_k=7) == [
        f"{BASE}xtc_probability, {BASE}mirostat: imp has no such sampler; not used"
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("temp", math.nan, "nan, expected 0 to 100"),
        ("temp", math.inf, "inf, expected 0 to 100"),
        ("temp", -math.inf, "-inf, expected 0 to 100"),
        ("temp", 101.0, "101.0, expected 0 to 100"),
        ("temp", "0.7", "is not a number"),
        ("temp", True, "is not a number"),
        ("temp", [0.7], "is not a number"),
        ("top_k", 2.5, "2.5, expected a whole number"),
        ("top_k", math.nan, "nan, expected a whole number"),
        ("top_k", 2**40, f"{2**40}, expected 0 to {2**32 - 1}"),
        ("top_p", 0.0, "0.0, expected above 0 up to 1"),
        ("top_p", 1.5, "1.5, expected above 0 up to 1"),
        ("min_p", -0.1, "-0.1, expected 0 to 1"),
        ("penalty_repeat", 0.0, "0.0, expected 0.01 to 100"),
        ("penalty_last_n", -2, f"-2, expected 0 to {2**32 - 1}"),
    ],
)
def test_smp_27_what_is_out_of_range_is_left_out_and_reported(key: str, value: object, said: str) -> None:
    assert changed(**{key: value, "min_p" if key != "min_p" else "top_k": 0.5 if key != "min_p" else 7}) == (
        {"top_k": 7} if key == "min_p" else {"min_p": 0.5}
    )
    assert warned(**{key: value}) == [f"{BASE}{key}: {said}; not used"]


def test_smp_27_where_the_settings_speak_the_file_is_not_blamed() -> None:
    metadata = {BASE + "temp": math.nan}
    wanted = DefaultSampling(temperature=0.5)
    assert default_sampling(metadata, wanted).options.temperature == 0.5
    assert sampling_warnings(metadata, wanted) == []


def test_smp_27_a_model_with_odd_sampler_keys_runs_and_warns(tmp_path: Path) -> None:
    keys = (Key(BASE + "penalty_last_n", I32, -1), Key(BASE + "top_k", I32, -1), Key(BASE + "min_p", F32, math.nan))
    path = demo_with_keys(tmp_path / "odd.gguf", *keys)
    with imp_service.load(str(path)) as model:
        assert model.warnings == (f"{BASE}min_p: nan, expected 0 to 1; not used",)
        assert (model.default_sampling.penalty_window, model.default_sampling.top_k) == (0, 0)
        greedy = SamplingOptions(temperature=0)
        request = GenerationRequest("Once upon a time", sampling=greedy, stop=StopOptions(max_tokens=8))
        told = [token for reply in model.generate(request) for token in getattr(reply, "token_ids", ())]
    with imp_service.load() as plain:
        assert told == [token for reply in plain.generate(request) for token in getattr(reply, "token_ids", ())]
        assert len(told) == 8


SILENT: tuple[dict[str, Any], ...] = (
    {},
    {"general.name": "a model"},
    {BASE + "penalty_repeat": 1.1, BASE + "penalty_last_n": 64},
    {BASE + "temp": math.nan},
    {"generation_config.do_sample": True},
)


@pytest.mark.parametrize("metadata", SILENT, ids=lambda said: " ".join(said) or "no key")
def test_smp_28_imp_recommends_a_draw_where_the_file_does_not(metadata: dict[str, Any]) -> None:
    found = default_sampling(metadata, DefaultSampling())
    assert {name: getattr(found.options, name) for name in OWN} == OWN == {"temperature": 0.8, "min_p": 0.05}
    assert {found.origins[name] for name in OWN} == {IMP}


@pytest.mark.parametrize("said", [{"temp": 0.7}, {"top_k": 0}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_smp_28_a_file_that_recommends_a_draw_decides_all_of_it(said: dict[str, float]) -> None:
    found = default_sampling({BASE + name: value for name, value in said.items()}, DefaultSampling())
    [(key, value)] = said.items()
    asked = "temperature" if key == "temp" else key
    assert {name: getattr(found.options, name) for name in OFF} == {**OFF, asked: value}
    assert found.origins == {**dict.fromkeys(OFF, IMP), asked: "model"}


def test_smp_28_the_settings_replace_a_value_and_are_its_origin() -> None:
    found = default_sampling({}, DefaultSampling(temperature=1.0, top_k=40))
    assert (found.options.temperature, found.options.top_k, found.options.min_p) == (1.0, 40, 0.05)
    names = ("temperature", "top_k", "min_p", "top_p")
    assert [found.origins[name] for name in names] == ["imp.conf", "imp.conf", IMP, IMP]


def test_smp_28_a_request_keeps_what_it_sets_and_a_zero_is_a_value() -> None:
    default = default_sampling({}, DefaultSampling()).options
    pure = in_force(SamplingOptions(temperature=1.0, min_p=0.0, seed=3), default)
    assert {name: getattr(pure, name) for name in OFF} == OFF and pure.seed == 3
    assert in_force(SamplingOptions(temperature=0.0), default).min_p == 0.05


def test_smp_28_every_reply_says_what_was_in_force() -> None:
    with imp_service.load(None, "model.overrides.default_sampling.top_k=5") as model:
        result = model.generate("Once", max_tokens=1, temperature=0.5).result()
        assert (result.sampling.temperature, result.sampling.top_k, result.sampling.seed) == (0.5, 5, result.seed)
        with model.open(temperature=0, seed=7) as session:
            session.prefill("Once")
            held = session.generate(max_tokens=1).result()
            assert (held.sampling.temperature, held.sampling.seed) == (0, 7)
