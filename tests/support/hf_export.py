"""Writes a randomly initialised `transformers` model as a GGUF file: the oracle of architectures."""

from __future__ import annotations

import functools
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from support.gguf_contents import GgufContents, Tensor
from support.tiny_models import hashed

# Architectures whose rows of q and k GGUF permutes, so that pairs that rotate together are neighbours.
_PERMUTED = ("llama", "smollm3", "granite", "granitemoe", "mistral3", "arcee")


def fill(model: Any, seed: int = 0) -> None:
    """Gives every parameter numbers of its own, norms and biases too."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = hashed(name, tuple(parameter.shape), seed)
            spread = 1.0 if "embed" in name else np.sqrt(3.0 / parameter.shape[-1])
            if parameter.ndim == 1:
                centre = 1.0 if "norm" in name and "gemma" not in model.config.model_type else 0.0
                values, spread = centre + 0.4 * values, 1.0
            parameter.copy_(torch.from_numpy(values * spread).to(parameter.dtype))


def adjacent_pairs(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Rows of q or k for pairs that stand side by side, from rows for pairs that stand half a head apart."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def expert_tensors(name: str, values: NDArray[Any]) -> dict[str, Tensor]:
    """Of a stack over all experts, or of the shared one; gate and up lie one above the other."""
    layer = name.split(".")[2]
    suffix = "shexp" if ".shared_mlp." in name else "exps"
    if name.endswith(("down_proj", "output_linear.weight")):
        return {f"blk.{layer}.ffn_down_{suffix}.weight": Tensor(values)}
    gate, up = np.split(values, 2, axis=-2)
    return {
        f"blk.{layer}.ffn_gate_{suffix}.weight": Tensor(np.ascontiguousarray(gate)),
        f"blk.{layer}.ffn_up_{suffix}.weight": Tensor(np.ascontiguousarray(up)),
    }


def xielu_keys(model: Any) -> dict[str, list[float]]:
    """The parameters of the activation in each layer."""
    activations = [layer.mlp.act_fn for layer in model.model.layers]
    names = ("alpha_p", "alpha_n", "beta", "eps")
    return {f"xielu.{name}": [getattr(each, name).item() for each in activations] for name in names}


def rope_tensors(model: Any) -> dict[str, Tensor]:
    """GGUF holds the divisors of the frequencies, not the rules that they come from."""
    parameters = getattr(model.config, "rope_parameters", None) or {}
    kind = parameters.get("rope_type")
    if kind == "longrope":
        return {
            f"rope_factors_{name}.weight": Tensor(np.array(parameters[f"{name}_factor"], np.float32))
            for name in ("short", "long")
        }
    if kind == "llama3":
        frequencies = model.model.rotary_emb.inv_freq.double().numpy()
        plain = parameters["rope_theta"] ** (-np.arange(len(frequencies)) / len(frequencies))
        return {"rope_freqs.weight": Tensor((plain / frequencies).astype(np.float32))}
    return {}


@functools.cache
def name_map(architecture: str) -> gguf.TensorNameMap:
    [kind] = [kind for kind, known in gguf.MODEL_ARCH_NAMES.items() if known == architecture]
    return gguf.get_tensor_name_map(kind, 16)


def gguf_name(architecture: str, name: str) -> str:
    """As the tables of the package `gguf` have it."""
    name = name.replace(".router.weight", ".router.layer.weight")  # as it is on disk
    found = name_map(architecture).get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, f"{architecture} has no {name} in GGUF"
    return found


def export(model: Any, architecture: str, keys: dict[str, Any]) -> GgufContents:
    """`keys` are those beside the sizes, without the architecture in front."""
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tensors = rope_tensors(model)
    for full_name, parameter in model.named_parameters():
        name = full_name.replace("model.language_model.", "model.")  # of a model that also sees
        if name.startswith(("model.visual.", "model.vision_tower.", "model.multi_modal_projector.")):
            continue
        values = parameter.detach().numpy().astype(np.float32)
        if architecture in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            values = adjacent_pairs(values, head_dim)
        if architecture.startswith("gemma") and "norm" in name:
            values = values + 1
        if ".experts." in name or ".shared_mlp." in name:
            tensors |= expert_tensors(name, values)
        elif ".act_fn." not in name:
            tensors[gguf_name(architecture, name)] = Tensor(values)
    sizes = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        **epsilon(config),
    }
    named = {f"{architecture}.{key}": value for key, value in (sizes | keys).items()}
    if getattr(config, "hidden_act", "") == "xielu":
        named |= xielu_keys(model)
    return GgufContents({"general.architecture": architecture, **named}, tensors)


def epsilon(config: Any) -> dict[str, float]:
    if hasattr(config, "rms_norm_eps"):
        return {"attention.layer_norm_rms_epsilon": config.rms_norm_eps}
    value = config.norm_epsilon if hasattr(config, "norm_epsilon") else config.layer_norm_eps
    return {"attention.layer_norm_epsilon": value}
