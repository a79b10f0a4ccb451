"""Writes a tiny Qwen 3.5, 3.6 or Qwen3-Next with its draft head as a directory of safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import Tensor
from support.files.hf_contents import hf_config, hf_layer_name, write_hf
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import TinyModel

Tensors = dict[str, NDArray[Any]]

_LINEAR_NAMES = {
    "attn_qkv.weight": "in_proj_qkv.weight", "attn_gate.weight": "in_proj_z.weight", "ssm_in": "in_proj_qkvz.weight",
    "ssm_alpha.weight": "in_proj_a.weight", "ssm_beta.weight": "in_proj_b.weight", "ssm_ba.weight": "in_proj_ba.weight",
    "ssm_conv1d.weight": "conv1d.weight", "ssm_a": "A_log", "ssm_dt.bias": "dt_bias", "ssm_norm.weight": "norm.weight",
    "ssm_out.weight": "out_proj.weight",
}  # fmt: skip
_HEAD_NAMES = {
    "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head_norm": "norm",
}  # fmt: skip
_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight"}  # fmt: skip


def _stored(name: str, values: NDArray[Any], less: float) -> NDArray[Any]:
    """Returns values as files store them: a norm's weights minus `less`, except in linear attention."""
    return values - np.float32(less) if "norm" in name and not name.endswith("ssm_norm.weight") else values


def _by_key_head(model: TinyModel, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Puts q, k, v and the gate into one tensor, grouped by key head."""
    qkv, gate = tensors.pop("attn_qkv.weight"), tensors.pop("attn_gate.weight")
    q, k, v = np.split(qkv, [model.delta_key_width, 2 * model.delta_key_width])
    groups = [part.reshape(model.delta_key_heads, -1, model.hidden_size) for part in (q, k, v, gate)]
    return tensors | {"ssm_in": np.concatenate(groups, axis=1).reshape(-1, model.hidden_size)}


def _linear_tensors(model: TinyModel, tensors: dict[str, NDArray[Any]]) -> Tensors:
    if model.architecture == "qwen3next":
        tensors = _by_key_head(model, tensors)
    found: Tensors = {}
    for name, values in tensors.items():
        changed = values
        if name == "ssm_a":
            changed = np.log(-values)
        elif name == "ssm_conv1d.weight":
            changed = values[:, None]
        found[f"linear_attn.{_LINEAR_NAMES[name]}"] = changed
    return found


def _layer_tensors(model: TinyModel, stored: dict[str, Tensor], *, stacks: bool, less: float) -> Tensors:
    """Returns the tensors of one layer, without the layer in their names."""
    plain = {name.split(".", 2)[2]: _stored(name, tensor.values, less) for name, tensor in stored.items()}
    linear = {name: plain.pop(name) for name in list(plain) if name in _LINEAR_NAMES}
    found = _linear_tensors(model, linear) if linear else {}
    experts = {part: plain.pop(f"ffn_{part}_exps.weight") for part in ("gate", "up", "down")} if model.n_experts else {}
    for part, values in experts.items():
        if not stacks:
            found |= {f"mlp.experts.{i}.{part}_proj.weight": expert for i, expert in enumerate(values)}
    if experts and stacks:
        found["mlp.experts.gate_up_proj"] = np.concatenate([experts["gate"], experts["up"]], axis=1)
        found["mlp.experts.down_proj"] = experts["down"]
    for name, values in plain.items():
        stem, kind = name.rsplit(".", 1)
        in_layer = "post_attention_layernorm" if stem == "post_attention_norm" else hf_layer_name(stem)
        found[f"{in_layer}.{kind}"] = values[None] if stem == "ffn_gate_inp_shexp" else values
    return found


def qwen_tensors(
    head: TinyNextN, *, prefix: str = "mtp.", stacks: bool = False, head_stacks: bool | None = None, less: float = 1.0
) -> Tensors:
    """`stacks`: one tensor has all experts of a layer, also in the head unless `head_stacks` says otherwise.

    `less` is subtracted from the weights of norms, as in Qwen's files.
    """
    model, all_tensors = head.model, head.model.tensors()
    assert model.delta_key_heads == model.delta_value_heads or model.architecture == "qwen3next"  # orders differ
    tensors = {into: _stored(name, all_tensors[name].values, less) for name, into in _TOP.items()}
    for layer in range(model.n_layers):
        found = _layer_tensors(model, model.layer_tensors(layer), stacks=stacks, less=less)
        tensors |= {f"model.layers.{layer}.{name}": values for name, values in found.items()}
    for name, tensor in head.own_tensors().items():
        tensors[f"{prefix}{_HEAD_NAMES[name]}.weight"] = _stored(name, tensor.values, less)
    own_layer = head.wider.layer_tensors(model.n_layers)
    found = _layer_tensors(model, own_layer, stacks=stacks if head_stacks is None else head_stacks, less=less)
    return tensors | {f"{prefix}layers.0.{name}": values for name, values in found.items()}


def write_qwen(head: TinyNextN, folder: Path, **form: Any) -> Path:
    """`form` is passed on to qwen_tensors()."""
    return write_hf(folder / "model.safetensors", qwen_config(head.model), qwen_tensors(head, **form))


def qwen_config(model: TinyModel) -> dict[str, Any]:
    config = hf_config(model) | {
        "partial_rotary_factor": model.rope_dims / model.head_dim,
        "linear_num_key_heads": model.delta_key_heads,
        "linear_num_value_heads": model.delta_value_heads,
        "linear_key_head_dim": model.delta_key_dim,
        "linear_value_head_dim": model.delta_value_dim,
        "linear_conv_kernel_dim": model.conv_taps,
        "full_attention_interval": 4,
        "mtp_num_hidden_layers": 1,
    }
    config.pop("qkv_bias", None)
    return config
