"""An emulated or real GPU gives the logits of `transformers` for the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.files.gguf_contents import Tensor
from support.files.hf_export import export
from support.files.hf_weights import fill, weights_of
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import load, logits, prompt, rms_distance
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import bfloat16_activations_bound, float16_products_bound

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {
    "vocab_size": 53, "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512, "attn_implementation": "eager",
    "tie_word_embeddings": False,
}  # fmt: skip
# The same sizes as a TinyModel, for the error bounds.
TINY = TinyModel(n_layers=2, hidden_size=96, ffn_size=136, n_heads=6, head_dim=32)
# Model, further traits of its configuration, architecture and keys in GGUF.
FAMILIES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_theta": 10000.0, "attention_bias": True}, "llama", {"rope.freq_base": 10000.0}),
    "qwen3": ("Qwen3", {"rope_theta": 1e6}, "qwen3", {"rope.freq_base": 1e6}),
    "mixtral": (
        "Mixtral",
        {"rope_theta": 10000.0, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20},
        "llama",
        {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "expert_count": 5, "expert_used_count": 2},
    ),
    "gemma2": (
        "Gemma2",
        {"rope_theta": 10000.0, "query_pre_attn_scalar": 32, "sliding_window": 20, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0, "tie_word_embeddings": True},
        "gemma2",
        {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0},
    ),
}  # fmt: skip
# Error bounds for rounded inputs of products. With float32 weights, only the inputs of attention are rounded.
BOUNDS: dict[str, Callable[[TinyModel], float]] = {
    "f32": float16_products_bound,
    "f16": float16_products_bound,
    "bf16": bfloat16_activations_bound,
}


def peer_of(family: str, dtype: str) -> Any:
    """Returns a transformers model that computes in float32, with matrices that the weight type represents exactly."""
    name, traits, _, _ = FAMILIES[family]
    transformers.utils.logging.set_verbosity_error()
    config = getattr(transformers, f"{name}Config")(**(SIZES | traits))
    peer = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    fill(peer)
    rounded = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    with torch.no_grad():
        for parameter in peer.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.to(rounded).float())
    return peer


def written(peer: Any, family: str, dtype: str, path: Path) -> Path:
    _, _, architecture, keys = FAMILIES[family]
    contents = export(weights_of(peer), architecture, keys)
    for name, tensor in contents.tensors.items():
        if tensor.values.ndim > 1 and "ffn_gate_inp" not in name:  # routers are float32 in files
            contents.tensors[name] = Tensor(tensor.values, dtype)
    return contents.write(path)


def peer_logits(peer: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return peer(torch.tensor([tokens])).logits[0].double().numpy()


@pytest.mark.long
@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_mod_5_logits_of_a_gpu_equal_those_of_transformers(
    device: str, family: str, dtype: str, tmp_path: Path
) -> None:
    """Runs batches of few and of many rows, because they use different kernels."""
    peer = peer_of(family, dtype)
    loaded = load(written(peer, family, dtype, tmp_path / "m.gguf"), tmp_path, device=device)
    bound = BOUNDS[dtype](TINY)
    for n_tokens in (4, 70):
        tokens = prompt(n_tokens, SIZES["vocab_size"])
        got, expected = logits(loaded, tokens), peer_logits(peer, tokens)
        assert rms_distance(got, expected) < bound
        assert rms_distance(got, np.roll(expected, 1, axis=0)) > 10 * bound
    with torch.no_grad():  # Negative control: half of one matrix.
        peer.model.layers[1].self_attn.o_proj.weight[:, :64] *= 0.5
    assert rms_distance(got, peer_logits(peer, tokens)) > 2 * bound
