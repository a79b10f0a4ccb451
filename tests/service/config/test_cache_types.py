"""The words of kv.dtype, and what replies say of them."""

from __future__ import annotations

import pytest

from imp_service import _core
from imp_service.config.cache_types import CacheTypes
from imp_service.config.derived import approximations
from imp_service.config.kinds import UnfitError
from imp_service.tables import KV_TYPES


@pytest.mark.parametrize(
    ("text", "word", "said"),
    [
        ("bf16", "bf16", ""),
        ("f32/f16", "f32/f16", ""),
        ("q8_0", "q8_0", "kv=q8_0"),
        ("rot8/rot4", "rot8/rot4", "kv=rot8/rot4"),
        ("bf16/rot4", "bf16/rot4", "kv=bf16/rot4"),
        ("rot4/rot4", "rot4", "kv=rot4"),
    ],
)
def test_kvq_10_replies_name_types_that_approximate(load_text, text: str, word: str, said: str) -> None:
    for key in ("kv.dtype", "model.overrides.kv_dtype"):
        settings = load_text("", f"{key}={text}").settings
        assert (settings.model.overrides.kv_dtype or settings.kv.dtype) == word
        assert approximations([word]) == said
    overrides = _core.ModelOverrides()
    overrides.kv_dtype = word
    assert overrides.kv_dtype == word, "the core writes a pair as the settings do"


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("q4_0", "rot4"), ("turbo4", "rot4"), ("turboquant_k8v4", "rot8/rot4"), ("turbo3", "rot3"), ("turbo2", "rot2"),
     ("u8", "rot8"), ("FP8", "rot8"),
     ("fp16", "f16")],
)  # fmt: skip
def test_kvq_7_words_of_other_programs_name_the_nearest_type(word: str, nearest: str) -> None:
    with pytest.raises(UnfitError, match=f'; the nearest is "{nearest}"$'):
        CacheTypes().read(word)


@pytest.mark.parametrize("word", ["", "q8_0/", "/q8_0", "q8_0/rot4/rot2", "rot5", "rot1", "Q8_0", 8, True, ["q8_0"]])
def test_kvq_7_other_words_are_refused(word: object) -> None:
    with pytest.raises(UnfitError, match=r'"keys/values"$'):
        CacheTypes().read(word)


def test_kvq_7_sizes_of_types() -> None:
    assert {name: kind.bits for name, kind in KV_TYPES.items()} == {
        "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "rot8": 8.5, "rot4": 4.5, "rot3": 3.5, "rot2": 2.5
    }  # fmt: skip
