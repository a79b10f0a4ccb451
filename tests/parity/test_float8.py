"""Checkpoints with E4M3 weights give the logits of `transformers` for the decoded weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.files.float8_checkpoint import CONVERTED, SCHEMES, Scheme, contents, quantize, write
from support.files.hf_weights import fill
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import distance, load, logits, prompt, rms_distance
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import float16_products_bound, float32_bound

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {
    "vocab_size": 53, "hidden_size": 192, "intermediate_size": 320, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512, "attn_implementation": "eager",
    "tie_word_embeddings": False,
}  # fmt: skip
# The same sizes as a TinyModel, for the error bounds.
TINY = TinyModel(n_layers=2, hidden_size=192, ffn_size=320, n_heads=6, head_dim=32)
FAMILIES = {"llama": ("LlamaForCausalLM", "LlamaConfig"), "qwen3": ("Qwen3ForCausalLM", "Qwen3Config")}

each_family = pytest.mark.parametrize("family", FAMILIES)
each_scheme = pytest.mark.parametrize("scheme", ["blocks", "channels"])


def peer_and_checkpoint(family: str, scheme: Scheme, folder: Path) -> tuple[Any, Path]:
    """Returns a transformers model with the decoded weights in float32, and the checkpoint."""
    model_class, config_class = FAMILIES[family]
    transformers.utils.logging.set_verbosity_error()
    peer = getattr(transformers, model_class)(getattr(transformers, config_class)(**SIZES)).eval()
    fill(peer)
    peer.save_pretrained(folder)  # for its configuration
    tensors = {name: parameter.detach().numpy().copy() for name, parameter in peer.named_parameters()}
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            if name.endswith(CONVERTED):
                parameter.copy_(torch.from_numpy(quantize(tensors[name], scheme)[2]))
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": scheme.config}
    return peer, write(folder / "model.safetensors", config, contents(tensors, scheme))


def peer_logits(peer: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return peer(torch.tensor([tokens])).logits[0].double().numpy()


@pytest.mark.few(2)
@each_family
@each_scheme
def test_mod_24_logits_equal_those_of_transformers(family: str, scheme: str, tmp_path: Path) -> None:
    """Both sides compute in float32."""
    peer, path = peer_and_checkpoint(family, SCHEMES[scheme], tmp_path)
    tokens = prompt(70, SIZES["vocab_size"])
    loaded = load(path, tmp_path, kv_dtype="f32")
    assert loaded.warnings == []
    got, expected = logits(loaded, tokens), peer_logits(peer, tokens)
    assert distance(got, expected) < 2 * float32_bound(TINY)
    fill(peer)  # the weights before rounding
    assert distance(got, peer_logits(peer, tokens)) > 100 * float32_bound(TINY)


@pytest.mark.long
@pytest.mark.parametrize("device", GPU_KINDS)
@each_family
@each_scheme
def test_mod_24_and_so_do_gpus(device: str, family: str, scheme: str, tmp_path: Path) -> None:
    """A GPU rounds the inputs of products to float16, and in long prompts the weights as well."""
    peer, path = peer_and_checkpoint(family, SCHEMES[scheme], tmp_path)
    loaded = load(path, tmp_path, device=device)
    for n_tokens in (4, 70):
        tokens = prompt(n_tokens, SIZES["vocab_size"])
        got, expected = logits(loaded, tokens), peer_logits(peer, tokens)
        assert rms_distance(got, expected) < 2 * float16_products_bound(TINY)
        assert rms_distance(got, np.roll(expected, 1, axis=0)) > 20 * float16_products_bound(TINY)
