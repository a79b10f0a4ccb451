"""Tiny towers of Gemma 4."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents
from support.models.tiny_tower import Array, Grid, TinyTower

TOWER = "model.vision_tower."
LAYERS = f"{TOWER}encoder.layers."
PATCHES = f"{TOWER}patch_embedder.input_proj.weight"
POSITIONS = f"{TOWER}patch_embedder.position_embedding_table"
MEAN, FACTORS = f"{TOWER}std_bias", f"{TOWER}std_scale"
PROJECTION = "model.embed_vision.embedding_projection.weight"
BOUNDS = ("input_min", "input_max", "output_min", "output_max")
_BICUBIC = 3
_IN_PROJECTOR = {
    "patch_embedder.input_proj.": "v.patch_embd.",
    "patch_embedder.position_embedding_table": "v.position_embd.weight",
    "std_": "v.std_",
    "model.embed_vision.embedding_projection.": "mm.input_projection.",
}
_IN_LAYER = {
    "input_layernorm": "ln1", "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2",
    "post_feedforward_layernorm": "ffn_post_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_out", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Gemma4Tower(TinyTower):
    model_type: str = "gemma4"
    cells: Grid = (2, 3)  # of a part
    n_places: int = 30  # of each table of learned positions
    is_clipped: bool = True
    is_standardized: bool = True
    patch_size: int = 4
    reduction: int = 3
    n_layers: int = 3
    hidden_size: int = 48
    ffn_size: int = 88
    n_heads: int = 3
    slice_width: int = 40
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)

    @property
    def part_shape(self) -> tuple[int, int]:
        side = self.patch_size * self.reduction
        return self.cells[0] * side, self.cells[1] * side

    @property
    def cell_width(self) -> int:
        return self.hidden_size

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.n_heads

    def vision_config(self) -> dict[str, Any]:
        return {
            "model_type": "gemma4_vision", "hidden_size": self.hidden_size, "intermediate_size": self.ffn_size,
            "num_hidden_layers": self.n_layers, "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_heads, "head_dim": self.head_dim, "patch_size": self.patch_size,
            "pooling_kernel_size": self.reduction, "position_embedding_size": self.n_places,
            "use_clipped_linears": self.is_clipped, "standardize": self.is_standardized,
        }  # fmt: skip

    def config(self) -> dict[str, Any]:
        text = {"hidden_size": self.slice_width}
        return {"model_type": self.model_type, "text_config": text, "vision_config": self.vision_config()}

    def processor(self) -> dict[str, Any]:
        return {
            "do_normalize": False, "image_mean": [0.0] * 3, "image_std": [1.0] * 3, "resample": _BICUBIC,
            "rescale_factor": 1 / 255, "patch_size": self.patch_size, "pooling_kernel_size": self.reduction,
            "max_soft_tokens": 280,
        }  # fmt: skip

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, ffn = self.hidden_size, self.ffn_size
        found: dict[str, tuple[int, ...]] = {
            PATCHES: (hidden, 3 * self.patch_size**2), POSITIONS: (2, self.n_places, hidden),
        }  # fmt: skip
        for layer in range(self.n_layers):
            at = f"{LAYERS}{layer}."
            products = {f"self_attn.{name}_proj": (hidden, hidden) for name in "qkvo"}
            products |= {"mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}
            for name, shape in products.items():
                found[f"{at}{name}.linear.weight"] = shape
                found |= {f"{at}{name}.{bound}": () for bound in BOUNDS if self.is_clipped}
            for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
                found[f"{at}{name}_layernorm.weight"] = (hidden,)
            found |= {f"{at}self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        if self.is_standardized:
            found |= {MEAN: (hidden,), FACTORS: (hidden,)}
        return found | {PROJECTION: (self.width, hidden)}

    def projector_keys(self) -> dict[str, Any]:
        return {
            "clip.vision.projector_type": "gemma4v", "clip.vision.image_size": 224,
            "clip.vision.projector.scale_factor": self.reduction, "clip.vision.image_mean": [0.0] * 3,
            "clip.vision.image_std": [1.0] * 3,
        }  # fmt: skip

    def projector_tensors(self, name: str, values: Array) -> dict[str, Array]:
        if name == PATCHES:
            values = np.ascontiguousarray(values.reshape(-1, self.patch_size, self.patch_size, 3).transpose(0, 3, 1, 2))
        if name.startswith(LAYERS):
            layer, part = name.removeprefix(LAYERS).split(".", 1)
            product, end = part.replace(".linear", "").rsplit(".", 1)
            return {f"v.blk.{layer}.{_IN_LAYER[product]}.{end}": np.atleast_1d(values)}
        for of_library, of_projector in _IN_PROJECTOR.items():
            bare = name.removeprefix(TOWER)
            if bare.startswith(of_library):
                return {re.sub(f"^{re.escape(of_library)}", of_projector, bare): values}
        raise AssertionError(name)

    def stored(self, contents: GgufContents) -> dict[str, NDArray[np.float64]]:
        found = super().stored(contents)
        of_patches = found[PATCHES].reshape(-1, 3, self.patch_size, self.patch_size)
        return found | {PATCHES: of_patches.transpose(0, 2, 3, 1).reshape(found[PATCHES].shape)}

    def weight_of_values(self, layer: int) -> str:
        return f"{LAYERS}{layer}.self_attn.v_proj.linear.weight"

    @property
    def last_product(self) -> str:
        return PROJECTION
