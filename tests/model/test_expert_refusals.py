"""Checkpoints whose experts cannot be: each is refused with its reason, naming the key or the tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.models.forward_runs import load
from support.models.tiny_models import TinyModel, tiny

MIXTRAL = tiny("llama", n_experts=4)


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        load(path, path.parent)
    return info.value.reason, info.value.message


def changed(model: TinyModel, key: str, value: Any) -> GgufContents:
    contents = model.contents()
    if value is None:
        del contents.keys[f"{model.architecture}.{key}"]
    else:
        contents.keys[f"{model.architecture}.{key}"] = value
    return contents


BAD_KEYS = [
    ("expert_count", 0, ("MODEL_VALUE", "0")),
    ("expert_count", 2**31, ("MODEL_LIMIT", "2147483648, expected 1 to 1024")),
    ("expert_count", 1025, ("MODEL_LIMIT", "1025, expected 1 to 1024")),
    ("expert_used_count", None, ("MODEL_KEY", "missing")),
    ("expert_used_count", 0, ("MODEL_VALUE", "0, expected 1 to 1024")),
    ("expert_used_count", 8, ("MODEL_VALUE", "8, expected 1 to the ")),
    ("expert_used_count", np.uint64(2**63), ("MODEL_LIMIT", "9223372036854775808")),
    ("expert_feed_forward_length", 0, ("MODEL_VALUE", "0")),
    ("expert_feed_forward_length", 2**32 - 1, ("MODEL_LIMIT", "4294967295")),
    ("expert_gating_func", 2, ("MODEL_UNSUPPORTED", "2, expected 1, a softmax")),
    *[("expert_weights_scale", value, ("MODEL_VALUE", "finite and above 0")) for value in (0.0, -1.0, float("nan"))],
]


@pytest.mark.few(13)
@pytest.mark.parametrize("model", [tiny("qwen3moe"), MIXTRAL], ids=["qwen3moe", "mixtral"])
@pytest.mark.parametrize(("key", "value", "expected"), BAD_KEYS)
def test_m40_experts_that_no_model_has(
    model: TinyModel, key: str, value: Any, expected: tuple[str, str], tmp_path: Path
) -> None:
    reason, words = expected
    got, message = refusal(changed(model, key, value).write(tmp_path / "m.gguf"))
    assert (got, f"m.gguf: key {model.architecture}.{key}: " in message) == (reason, True), message
    assert words in message


@pytest.mark.parametrize("key", ["expert_count", "expert_used_count", "expert_feed_forward_length"])
@pytest.mark.parametrize("value", ["4", 4.0, True, [4]])
def test_m21_a_key_of_experts_in_another_type(key: str, value: Any, tmp_path: Path) -> None:
    reason, message = refusal(changed(tiny("qwen3moe"), key, value).write(tmp_path / "m.gguf"))
    assert (reason, f"qwen3moe.{key}" in message) == ("MODEL_TYPE", True)


def test_m40_a_router_without_a_count_of_experts(tmp_path: Path) -> None:
    for count in (None, 0):
        reason, message = refusal(changed(MIXTRAL, "expert_count", count).write(tmp_path / "m.gguf"))
        assert (reason, message) == (
            "MODEL_VALUE", "m.gguf: key llama.expert_count: 0, expected the number of experts that the router "
            "chooses from",
        )  # fmt: skip


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "gemma3"])
def test_m40_experts_in_a_family_that_has_none(family: str, tmp_path: Path) -> None:
    reason, message = refusal(changed(tiny(family), "expert_count", 8).write(tmp_path / "m.gguf"))
    assert (reason, message) == ("MODEL_UNSUPPORTED", f"m.gguf: key {family}.expert_count: 8, expected no experts")


def test_m40_more_experts_than_all_layers_together_may_have(tmp_path: Path) -> None:
    """Refused before a name is made for each of them."""
    contents = changed(tiny("qwen3moe"), "expert_count", 1024)
    contents.keys["qwen3moe.block_count"] = 1024
    reason, message = refusal(contents.write(tmp_path / "m.gguf"))
    assert (reason, message) == (
        "MODEL_LIMIT",
        "m.gguf: key qwen3moe.expert_count: 1024 in each of 1024 layers, expected at most 65536 in all",
    )


@pytest.mark.parametrize("name", ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"])
def test_mod_6_m36_a_tensor_of_experts_is_missing_or_has_another_shape(name: str, tmp_path: Path) -> None:
    name = f"blk.1.{name}.weight"
    contents = tiny("qwen3moe").contents()
    right = contents.tensors.pop(name).values
    expected = str(list(right.shape[::-1]))
    assert refusal(contents.write(tmp_path / "m.gguf")) == (
        "MODEL_TENSOR", f"m.gguf: tensor {name}: missing, expected {expected}",
    )  # fmt: skip
    flat = right.reshape(-1, right.shape[-1])
    for wrong in (
        right[:-1],
        right[..., :-1],
        np.concatenate([right, right[:1]]),
        flat[: len(right)],
        np.stack([right, right]),
    ):
        if wrong.shape == right.shape:
            continue
        contents.tensors[name] = Tensor(np.ascontiguousarray(wrong))
        reason, message = refusal(contents.write(tmp_path / "m.gguf"))
        assert (reason, message) == (
            "MODEL_TENSOR", f"m.gguf: tensor {name}: shape {list(wrong.shape[::-1])}, expected {expected}",
        )  # fmt: skip


@pytest.mark.parametrize("name", ["blk.1.ffn_gate.weight", "blk.0.ffn_down_exps.bias", "blk.2.ffn_up_shexp.weight"])
def test_mod_6_a_tensor_left_over_beside_experts(name: str, tmp_path: Path) -> None:
    contents = tiny("qwen3moe").contents()
    contents.tensors[name] = Tensor(np.array([1.0, 2.0, 3.0], np.float32))
    assert refusal(contents.write(tmp_path / "m.gguf")) == (
        "MODEL_TENSOR", f"m.gguf: tensor {name}: shape [3], expected no such tensor in this architecture",
    )  # fmt: skip


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"num_experts": 0}, "MODEL_CONFIG", "num_experts: 0"),
    ({"num_experts": 2**40}, "MODEL_LIMIT", "num_experts: 1099511627776"),
    ({"num_experts": None}, "MODEL_CONFIG", "missing, but required"),
    ({"num_experts_per_tok": 8}, "MODEL_CONFIG", "num_experts_per_tok: 8, expected 1 to the 7 experts"),
    ({"moe_intermediate_size": -1}, "MODEL_CONFIG", "moe_intermediate_size: "),
    ({"norm_topk_prob": 1}, "MODEL_CONFIG", "norm_topk_prob"),
    ({"decoder_sparse_step": 2}, "MODEL_TENSOR", "model.layers.0.mlp.gate_proj.weight: missing, expected [40, 72]"),
    ({"decoder_sparse_step": 9}, "MODEL_CONFIG", "decoder_sparse_step: 9, expected at least one layer with experts"),
    ({"mlp_only_layers": [1]}, "MODEL_TENSOR", "model.layers.1.mlp.gate_proj.weight: missing, expected [40, 72]"),
    ({"num_experts": 8}, "MODEL_TENSOR", "model.layers.0.mlp.gate.weight: shape [40, 7], expected [40, 8]"),
    ({"num_experts": 6}, "MODEL_TENSOR", "model.layers.0.mlp.gate.weight: shape [40, 7], expected [40, 6]"),
]


@pytest.mark.parametrize(("changes", "reason", "words"), BAD_FIELDS)
def test_m77_m80_experts_of_a_configuration(changes: dict[str, Any], reason: str, words: str, tmp_path: Path) -> None:
    model = tiny("qwen3moe")
    path = write_hf(tmp_path / "model.safetensors", hf_config(model) | changes, hf_tensors(model))
    got, message = refusal(path)
    assert (got, words in message) == (reason, True), message


def test_mod_6_an_expert_of_a_checkpoint_is_missing_or_left_over(tmp_path: Path) -> None:
    tensors = hf_tensors(MIXTRAL)
    name = "model.layers.2.block_sparse_moe.experts.{}.w2.weight"
    lost = {key: values for key, values in tensors.items() if key != name.format(3)}
    assert refusal(write_hf(tmp_path / "model.safetensors", hf_config(MIXTRAL), lost)) == (
        "MODEL_TENSOR", f"model.safetensors: tensor {name.format(3)}: missing, expected [72, 40]",
    )  # fmt: skip
    more = tensors | {name.format(4): tensors[name.format(3)]}
    reason, message = refusal(write_hf(tmp_path / "model.safetensors", hf_config(MIXTRAL), more))
    assert (reason, name.format(4) in message) == ("MODEL_TENSOR", True)
