"""One tensor with q, k and v, or with gate and up of all experts: the same bits as from a tensor for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.models.forward_runs import load, logits, prompt
from support.models.fused_tensors import FUSED, fused
from support.models.tiny_models import TinyModel, tiny

_EXPERTS = {"n_experts": 6, "expert_ffn_size": 256}
# Rows of 256, which K-quants need. Families with biases, experts, both, a gate in q, windows, and norms of q and k.
SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "qwen3moe": _EXPERTS,
    "qwen2moe": {"expert_ffn_size": 256, "shared_ffn_size": 512},
    "qwen35moe": {
        **_EXPERTS, "n_layers": 4, "rope_dims": 16, "delta_key_heads": 2, "delta_value_heads": 4, "delta_key_dim": 64,
        "delta_value_dim": 64, "shared_ffn_size": 512,
    },
    "gpt-oss": {"expert_ffn_size": 256},
    "gemma3": {},
    "cohere2": {},
}  # fmt: skip
TYPES = ("f32", "bf16", "q8_0", "q4_k", "q6_k", "iq4_xs")


def source(family: str, dtype: str = "f32") -> TinyModel:
    sizes = {"hidden_size": 256, "ffn_size": 512, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "n_layers": 2}
    return tiny(family, dtype=dtype, **(sizes | SIZES[family]))


def fused_names(names: Any) -> set[str]:
    return {whole for whole in FUSED for name in names if f".{whole}." in name}


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", SIZES)
def test_mod_5_fused_tensors_give_the_same_bits(family: str, dtype: str, tmp_path: Path) -> None:
    model = source(family, dtype)
    tokens = prompt(20, model.vocab_size)
    separate = model.contents()
    together = fused(separate)
    assert "attn_qkv" in fused_names(together.tensors)
    assert ("ffn_gate_up_exps" in fused_names(together.tensors)) == (model.n_experts > 0)
    expected = logits(load(separate.write(tmp_path / "separate.gguf"), tmp_path), tokens)
    loaded = load(together.write(tmp_path / "fused.gguf"), tmp_path)
    assert loaded.warnings == []
    assert np.array_equal(logits(loaded, tokens), expected)


@pytest.mark.parametrize("family", ["qwen2", "qwen3moe"])
def test_mod_5_some_layers_may_have_fused_tensors(family: str, tmp_path: Path) -> None:
    model = source(family)
    tokens = prompt(20, model.vocab_size)
    together = fused(model.contents(), {1})
    assert "blk.0.attn_q.weight" in together.tensors
    assert "blk.1.attn_qkv.weight" in together.tensors
    got = logits(load(together.write(tmp_path / "fused.gguf"), tmp_path), tokens)
    assert np.array_equal(got, logits(load(model, tmp_path), tokens))


@pytest.mark.parametrize("family", ["qwen3", "qwen3moe"])
def test_hon_1_rows_in_another_order_are_another_model(family: str, tmp_path: Path) -> None:
    model = source(family)
    tokens = prompt(20, model.vocab_size)
    together = fused(model.contents())
    name = "blk.1.ffn_gate_up_exps.weight" if model.n_experts else "blk.1.attn_qkv.weight"
    tensor = together.tensors[name]
    tensor.values = np.roll(tensor.values, 256, axis=-2)
    tensor.raw = None
    got = logits(load(together.write(tmp_path / "fused.gguf"), tmp_path), tokens)
    assert not np.array_equal(got, logits(load(model, tmp_path), tokens))


def test_mod_6_a_part_beside_the_whole_is_refused(tmp_path: Path) -> None:
    model = source("qwen3")
    together = fused(model.contents())
    together.tensors["blk.1.attn_k.weight"] = model.contents().tensors["blk.1.attn_k.weight"]
    with pytest.raises(_core.ModelError, match=r"blk\.1\.attn_k\.weight: shape .*no such tensor"):
        load(together.write(tmp_path / "m.gguf"), tmp_path)


def test_mod_6_a_fused_tensor_without_some_rows_is_refused(tmp_path: Path) -> None:
    together = fused(source("qwen3").contents())
    tensor = together.tensors["blk.1.attn_qkv.weight"]
    tensor.values, tensor.raw = tensor.values[:-64], None
    with pytest.raises(_core.ModelError, match=r"blk\.1\.attn_qkv\.weight: shape \[256, 448\], expected \[256, 512\]"):
        load(together.write(tmp_path / "m.gguf"), tmp_path)
