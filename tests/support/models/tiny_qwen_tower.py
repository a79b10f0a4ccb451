"""Tiny towers of Qwen 3 VL, 3.5 and 3.6."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from support.models.tiny_tower import Array, Grid, TinyTower

TOWER = "model.visual."
LAYERS = f"{TOWER}blocks."
PATCHES = f"{TOWER}patch_embed.proj"
POSITIONS = f"{TOWER}pos_embed.weight"
MERGER, TAPS = f"{TOWER}merger.", f"{TOWER}deepstack_merger_list."
_BICUBIC, _FRAMES = 3, 2
_IN_PROJECTOR = {
    r"patch_embed\.proj\.": "v.patch_embd.",
    r"pos_embed\.": "v.position_embd.",
    r"blocks\.(\d+)\.norm([12])\.": r"v.blk.\1.ln\2.",
    r"blocks\.(\d+)\.attn\.qkv\.": r"v.blk.\1.attn_qkv.",
    r"blocks\.(\d+)\.attn\.proj\.": r"v.blk.\1.attn_out.",
    r"blocks\.(\d+)\.mlp\.linear_fc1\.": r"v.blk.\1.ffn_up.",
    r"blocks\.(\d+)\.mlp\.linear_fc2\.": r"v.blk.\1.ffn_down.",
    r"merger\.norm\.": "v.post_ln.",
    r"merger\.linear_fc1\.": "mm.0.",
    r"merger\.linear_fc2\.": "mm.2.",
}


@dataclasses.dataclass(frozen=True)
class QwenTower(TinyTower):
    model_type: str = "qwen3_vl"
    cells: Grid = (3, 5)  # of a part
    table_side: int = 6  # of the learned positions
    taps: tuple[int, ...] = (0, 1)  # layers whose output becomes a slice of a cell
    patch_size: int = 7
    reduction: int = 2
    n_layers: int = 3
    hidden_size: int = 48
    ffn_size: int = 88
    n_heads: int = 3
    slice_width: int = 40
    min_pixels: int = 14**2
    max_pixels: int = 30 * 14**2

    @property
    def part_shape(self) -> tuple[int, int]:
        side = self.patch_size * self.reduction
        return self.cells[0] * side, self.cells[1] * side

    @property
    def n_slices(self) -> int:
        return 1 + len(self.taps)

    @property
    def has_taps(self) -> bool:
        """Whether the family has such layers at all."""
        return self.model_type.startswith("qwen3_vl")

    def vision_config(self) -> dict[str, Any]:
        taps = {"deepstack_visual_indexes": list(self.taps)} if self.has_taps else {}
        return taps | {
            "depth": self.n_layers, "hidden_size": self.hidden_size, "intermediate_size": self.ffn_size,
            "num_heads": self.n_heads, "patch_size": self.patch_size, "out_hidden_size": self.slice_width,
            "num_position_embeddings": self.table_side**2, "spatial_merge_size": self.reduction,
            "temporal_patch_size": _FRAMES, "in_channels": 3, "hidden_act": "gelu_pytorch_tanh",
        }  # fmt: skip

    def config(self) -> dict[str, Any]:
        text = {"hidden_size": self.slice_width}
        return {"model_type": self.model_type, "text_config": text, "vision_config": self.vision_config()}

    def processor(self) -> dict[str, Any]:
        return {
            "image_mean": list(self.mean), "image_std": list(self.deviation), "resample": _BICUBIC,
            "rescale_factor": 1 / 255, "patch_size": self.patch_size, "merge_size": self.reduction,
            "temporal_patch_size": _FRAMES,
            "size": {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
        }  # fmt: skip

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, ffn, side = self.hidden_size, self.ffn_size, self.patch_size
        found = {f"{PATCHES}.weight": (hidden, 3, _FRAMES, side, side), f"{PATCHES}.bias": (hidden,)}
        found[POSITIONS] = (self.table_side**2, hidden)

        def add(at: str, norms: dict[str, int], products: dict[str, tuple[int, int]]) -> None:
            for name, size in norms.items():
                found[f"{at}{name}.weight"] = found[f"{at}{name}.bias"] = (size,)
            for name, shape in products.items():
                found[f"{at}{name}.weight"], found[f"{at}{name}.bias"] = shape, shape[:1]

        for layer in range(self.n_layers):
            attention = {"attn.qkv": (3 * hidden, hidden), "attn.proj": (hidden, hidden)}
            forward = {"mlp.linear_fc1": (ffn, hidden), "mlp.linear_fc2": (hidden, ffn)}
            add(f"{LAYERS}{layer}.", {"norm1": hidden, "norm2": hidden}, attention | forward)
        wide = self.cell_width
        merged = {"linear_fc1": (wide, wide), "linear_fc2": (self.slice_width, wide)}
        add(MERGER, {"norm": hidden}, merged)
        for number in range(len(self.taps)):
            add(f"{TAPS}{number}.", {"norm": wide}, merged)
        return found

    def projector_keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "image_size": self.table_side * self.patch_size, "spatial_merge_size": self.reduction,
            "image_min_pixels": self.min_pixels, "image_max_pixels": self.max_pixels,
        }  # fmt: skip
        if self.taps:
            keys["is_deepstack_layers"] = [layer in self.taps for layer in range(self.n_layers)]
        general = {"clip.projector_type": "qwen3vl_merger", "clip.use_gelu": True}
        return general | {f"clip.vision.{key}": value for key, value in keys.items()}

    def projector_tensors(self, name: str, values: Array) -> dict[str, Array]:
        if name == f"{PATCHES}.weight":
            return {"v.patch_embd.weight": values[:, :, 0], "v.patch_embd.weight.1": values[:, :, 1]}
        if name.startswith(TAPS):
            number, product, kind = name.removeprefix(TAPS).split(".")
            layer = self.taps[int(number)]
            return {f"v.deepstack.{layer}.{product.removeprefix('linear_')}.{kind}": values}
        for of_library, of_projector in _IN_PROJECTOR.items():
            bare = name.removeprefix(TOWER)
            if re.match(of_library, bare):
                return {re.sub(of_library, of_projector, bare): values}
        raise AssertionError(name)

    def weight_of_values(self, layer: int) -> str:
        return f"{LAYERS}{layer}.attn.qkv.weight"

    @property
    def product_of_squares(self) -> str:
        return f"{MERGER}linear_fc1.weight"

    @property
    def last_product(self) -> str:
        return f"{MERGER}linear_fc2.weight"
