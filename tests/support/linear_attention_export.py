"""The tensors of linear attention in GGUF, from those of `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.gguf_contents import Tensor

Array = NDArray[Any]
_NAMES = {
    "in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight",
    "in_proj_a.weight": "ssm_alpha.weight", "in_proj_b.weight": "ssm_beta.weight",
    "in_proj_ba.weight": "ssm_ba.weight", "conv1d.weight": "ssm_conv1d.weight", "A_log": "ssm_a",
    "dt_bias": "ssm_dt.bias", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight",
}  # fmt: skip


class Heads:
    """The sizes of linear attention, and the order of value heads that GGUF's Qwen 3.5 has."""

    def __init__(self, config: dict[str, Any], architecture: str) -> None:
        self.keys, self.values = config["linear_num_key_heads"], config["linear_num_value_heads"]
        self.key_dim, self.value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
        self.interleaved = architecture.startswith("qwen35")

    def reordered(self, rows: Array, head_dim: int) -> Array:
        """Rows of value heads; those that share a key head are consecutive, and are to be its number apart."""
        if not self.interleaved:
            return rows
        heads = rows.reshape(self.keys, self.values // self.keys, head_dim, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    def of_qkv(self, rows: Array) -> Array:
        qk, v = np.split(rows, [2 * self.keys * self.key_dim])
        return np.concatenate([qk, self.reordered(v, self.value_dim)])

    def split(self, qkvz: Array) -> tuple[Array, Array]:
        """q, k and v; and the gate: of rows that are grouped by key head."""
        of_key = self.values // self.keys * self.value_dim
        groups = qkvz.reshape(self.keys, -1, qkvz.shape[1])
        ends = np.cumsum([self.key_dim, self.key_dim, of_key])
        q, k, v, z = (part.reshape(-1, qkvz.shape[1]) for part in np.split(groups, ends, axis=1))
        return np.concatenate([q, k, v]), z


def linear_tensors(name: str, values: Array, config: dict[str, Any], architecture: str) -> dict[str, Tensor]:
    heads = Heads(config, architecture)
    at, part = name.removeprefix("model.layers.").split(".linear_attn.")
    if part == "in_proj_qkvz.weight":
        qkv, gate = heads.split(values)
        return {f"blk.{at}.attn_qkv.weight": Tensor(qkv), f"blk.{at}.attn_gate.weight": Tensor(gate)}
    if part == "in_proj_qkv.weight":
        values = heads.of_qkv(values)
    elif part == "conv1d.weight":
        values = heads.of_qkv(values[:, 0])
    elif part == "in_proj_z.weight":
        values = heads.reordered(values, heads.value_dim)
    elif part in ("in_proj_a.weight", "in_proj_b.weight", "dt_bias"):
        values = heads.reordered(values, 1)
    elif part == "A_log":
        values = heads.reordered(-np.exp(values.astype(np.float64)).astype(np.float32), 1)
    elif part == "out_proj.weight":
        values = np.ascontiguousarray(heads.reordered(np.ascontiguousarray(values.T), heads.value_dim).T)
    return {f"blk.{at}.{_NAMES[part]}": Tensor(values)}
