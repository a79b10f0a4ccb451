"""What Gemma 4 files may or may not hold, in addition to what every family's tests cover."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.models.forward_runs import load, logits, prompt
from support.models.tiny_gemma4 import TinyGemma4
from support.models.tiny_models import tiny

TOKENS = prompt(40, 51)


def model(**changes: Any) -> TinyGemma4:
    made = tiny("gemma4", **changes)
    assert isinstance(made, TinyGemma4)
    return made


def bits_of(contents: GgufContents, folder: Path) -> np.ndarray:
    loaded = load(contents.write(folder / "m.gguf"), folder, kv_dtype="f32")
    assert loaded.warnings == []
    return logits(loaded, TOKENS)


def test_kvq_12_layers_that_share_have_the_types_of_the_layer_that_writes(tmp_path: Path) -> None:
    """Layers 4 and 5 share: the cache has four layers."""
    loaded = load(model(), tmp_path, kv_dtype="f32", kv_layers=[("-1", "f16")])
    assert loaded.kv_dtypes == ["f32", "f32", "f32", "f16"]


def test_mod_5_keys_and_values_of_layers_that_share_are_not_read(tmp_path: Path) -> None:
    """Published files hold them."""
    contents = model().contents()
    expected = bits_of(contents, tmp_path)
    for layer in (4, 5):
        for name, like in (("attn_k", "attn_q"), ("attn_v", "attn_q"), ("attn_k_norm", "attn_q_norm")):
            values = contents.tensors[f"blk.{layer}.{like}.weight"].values
            contents.tensors[f"blk.{layer}.{name}.weight"] = Tensor(values + np.float32(1))
    np.testing.assert_array_equal(bits_of(contents, tmp_path), expected)
    contents.tensors["blk.4.attn_sinks.weight"] = Tensor(np.zeros(4, np.float32))
    with pytest.raises(_core.ModelError, match="no such tensor in this architecture"):
        bits_of(contents, tmp_path)


def test_mod_17_gate_and_up_of_all_experts_in_one_tensor_or_two(tmp_path: Path) -> None:
    fused, apart = (model(fused_experts=each) for each in (True, False))
    assert fused.contents().tensors.keys() != apart.contents().tensors.keys()
    np.testing.assert_array_equal(bits_of(fused.contents(), tmp_path), bits_of(apart.contents(), tmp_path))


def test_kv_10_the_cache_holds_each_layer_that_writes_it_once(tmp_path: Path) -> None:
    """Layers 0, 2 have 2 heads of 16; 1, 3 have one of 32; 4 and 5 share."""
    loaded = load(model(), tmp_path, kv_dtype="f32")
    facts = {fact["name"]: fact["value"] for fact in loaded.facts}
    assert (facts["layers_that_share_kv"], facts["layers_with_values_from_keys"]) == ("4-5", "1, 3")
    assert (facts["head_dim"], facts["windowed_head_dim"], facts["windowed_n_kv_heads"]) == ("32", "16", "2")
    per_token = 4 * 2 * 32 * 4  # layers, keys and values, elements, bytes
    assert loaded.memory["items"]["kv"] == loaded.n_blocks * 16 * per_token


REFUSED = [
    ({"gemma4.attention.shared_kv_layers": 6}, "attention.shared_kv_layers: 6, expected less than the number"),
    ({"gemma4.attention.shared_kv_layers": 5}, "attention.shared_kv_layers: 5, expected layers of each kind"),
    ({"gemma4.attention.value_length_swa": 8}, "attention.value_length_swa: 8, expected the key length 16"),
    ({"gemma4.feed_forward_length": [72] * 5}, "feed_forward_length: 5 values, expected one for each of 6 layers"),
    ({"gemma4.attention.head_count_kv": [2, 1, 3, 1, 3, 1]}, "3, expected a divisor of the 4 heads"),
    ({"gemma4.attention.head_count_kv": [2, 1, 2, 1, 1, 1]}, "shared_kv_layers: 2, expected layers with heads"),
    ({"gemma4.attention.key_length": 16, "gemma4.attention.value_length": 16, "gemma4.rope.dimension_count": 16,
      "gemma4.attention.head_count_kv": [2] * 6, "gemma4.rope.dimension_count_swa": 64},
     "rope.dimension_count_swa: 64, expected even, at most the head's 16"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_mod_7_keys_that_contradict_each_other(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    contents = model().contents()
    contents.keys |= keys
    with pytest.raises(_core.ModelError, match=message.replace("(", r"\(")):
        bits_of(contents, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes", [{"layer_embedding": 0}, {"n_experts": 0}, {"n_sharing": 0, "values_from_keys": False}]
)
def test_mod_5_a_trait_that_a_size_lacks(changes: dict[str, Any], tmp_path: Path) -> None:
    """Each against float64; and the whole model differs from it (HON-1)."""
    from support.models.forward_runs import distance
    from support.oracles.forward_bounds import float32_bound

    smaller = dataclasses.replace(model(), **changes)
    got = bits_of(smaller.contents(), tmp_path)
    assert distance(got, smaller.oracle().logits(TOKENS)) < float32_bound(smaller)
    assert distance(got, model().oracle().logits(TOKENS)) > 100 * float32_bound(smaller)
