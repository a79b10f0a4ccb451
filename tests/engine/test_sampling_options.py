"""The ranges of the sampler's fields that the core itself enforces."""

from __future__ import annotations

import math
from typing import Any

import pytest

from imp_service import _core
from support.engine.script_engine import ScriptEngine

INFINITE = [math.nan, math.inf, -math.inf]
# field: (word in the message, values allowed, values refused)
RANGES: dict[str, tuple[str, list[Any], list[Any]]] = {
    "temperature": ("temperature", [0.0, -0.0, 1e-38, 9e-5, 100.0], [-1.0, 100.1, 1e38, *INFINITE]),
    "top_k": ("top_k", [0, 1, 16, 17, 2**31 - 1], [-1]),
    "top_p": ("top_p", [1e-38, 0.5, 1.0], [0.0, -0.1, 1.001, *INFINITE]),
    "min_p": ("min_p", [0.0, -0.0, 1.0], [-0.1, 1.1, *INFINITE]),
    "typical_p": ("typical_p", [1e-38, 1.0], [0.0, 1.1, *INFINITE]),
    "repetition_penalty": ("repetition_penalty", [0.01, 1.0, 100.0], [0.0, -1.0, 0.009, 101.0, *INFINITE]),
    "frequency_penalty": ("frequency_penalty", [-2.0, 2.0], [-2.1, 2.1, *INFINITE]),
    "presence_penalty": ("presence_penalty", [-2.0, 2.0], [-2.1, 2.1, *INFINITE]),
    "penalty_window": ("penalty_window", [0, 2**31 - 1], [-1]),
    "dry_multiplier": ("dry.multiplier", [0.0, 100.0], [-1.0, 100.1, *INFINITE]),
    "dry_base": ("dry.base", [1.0, 100.0], [0.9, 100.1, *INFINITE]),
    "dry_allowed_length": ("dry.allowed_length", [0, 1024], [-1, 1025]),
    "dry_window": ("dry.window", [0, 2**31 - 1], [-1]),
    "dry_breakers": ("dry.breakers", [[], [0, 15]], [[16], [-1], [5, 3]]),
    "logit_bias": ("logit_bias", [{0: -100.0, 15: 100.0}],
                   [{16: 1.0}, {-1: 1.0}, {3: 100.1}, {3: -100.1}, *({3: x} for x in INFINITE)]),
    "seed": ("seed", [0, 2**64 - 1], []),
}  # fmt: skip


@pytest.mark.parametrize("field", RANGES)
def test_smp_14_p05_p12_each_field_has_its_range(field: str) -> None:
    word, allowed, refused = RANGES[field]
    engine = ScriptEngine()
    for value in allowed:
        engine.open(sampling=_core.SamplingOptions(**{field: value}))
    for value in refused:
        with pytest.raises(_core.InvalidArgument, match=rf"FIELD_INVALID: sampling\.{word}"):
            engine.open(sampling=_core.SamplingOptions(**{field: value}))
        with pytest.raises(_core.InvalidArgument, match=rf"FIELD_INVALID: sampling\.{word}"):
            engine.run(1, [1], sampling=_core.SamplingOptions(**{field: value}))
    engine.turn_until_idle()
    assert engine.core.stats().sessions == len(allowed)


def test_smp_14_the_table_covers_every_field() -> None:
    assert {field.keyword for field in _core.sampler_fields()} | {"dry_breakers", "logit_bias", "seed"} == set(RANGES)


@pytest.mark.parametrize("given", [{"top_h": 1.0}, {"temperature": "hot"}, {"top_k": 1.5}, {"top_k": 2**31}])
def test_y21_a_sampler_of_other_fields_or_types_is_a_type_error(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(given))):
        _core.SamplingOptions(**given)


def test_smp_14_at_most_1024_biases() -> None:
    engine = ScriptEngine(script={"vocab_size": 2000})
    engine.open(sampling=_core.SamplingOptions(logit_bias=dict.fromkeys(range(1024), 1.0)))
    with pytest.raises(_core.InvalidArgument, match="1025, expected at most 1024 entries"):
        engine.open(sampling=_core.SamplingOptions(logit_bias=dict.fromkeys(range(1025), 1.0)))


@pytest.mark.parametrize("tokens", [[16], [-1], [2**31 - 1], [0, 3, 16]])
def test_p03_p04_token_ids_are_below_the_vocabulary(tokens: list[int]) -> None:
    engine = ScriptEngine()
    at = len(tokens) - 1
    with pytest.raises(_core.InvalidArgument, match=rf"tokens\[{at}\]: {tokens[at]}, expected a token id below 16"):
        engine.generate(tokens)
    with pytest.raises(_core.InvalidArgument, match=rf"stop\.token_ids\[{at}\]"):
        engine.generate([1], stop_tokens=tokens, min_outputs=1, max_outputs=2)
    with pytest.raises(_core.InvalidArgument, match=r"stop\.token_ids: 257 ids, expected at most 256"):
        engine.generate([1], stop_tokens=[1] * 257)
    for given in ({"n_candidates": 21}, {"n_candidates": -1}, {"n_score_candidates": 17}):
        with pytest.raises(_core.InvalidArgument, match="top_logprobs"):
            engine.generate([1], **given)
    engine.turn_until_idle()
    assert engine.core.n_forwards == 0
    engine.assert_at_rest()
