"""What tiny towers of SigLIP's families have."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from support.models.tiny_tower import TinyTower


@dataclasses.dataclass(frozen=True)
class SiglipTower(TinyTower):
    root: ClassVar[str]  # begins the names of all tensors but the projector's

    model_type: str
    tile_size: int = 56
    patch_size: int = 7
    reduction: int = 2
    n_layers: int = 3
    hidden_size: int = 48
    ffn_size: int = 88
    n_heads: int = 3

    @property
    def part_shape(self) -> tuple[int, int]:
        return self.tile_size, self.tile_size

    def vision_config(self) -> dict[str, Any]:
        return {
            "hidden_size": self.hidden_size, "intermediate_size": self.ffn_size, "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads, "image_size": self.tile_size, "patch_size": self.patch_size,
        }  # fmt: skip

    @property
    def layers(self) -> str:
        return f"{self.root}encoder.layers."

    @property
    def patches(self) -> str:
        return f"{self.root}embeddings.patch_embedding"

    @property
    def positions(self) -> str:
        return f"{self.root}embeddings.position_embedding.weight"

    @property
    def last_norm(self) -> str:
        return f"{self.root}post_layernorm"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, ffn, side = self.hidden_size, self.ffn_size, self.patch_size
        found = {
            f"{self.patches}.weight": (hidden, 3, side, side),
            f"{self.patches}.bias": (hidden,),
            self.positions: (self.n_patches, hidden),
        }
        for layer in range(self.n_layers):
            at = f"{self.layers}{layer}."
            matrices = {f"self_attn.{name}_proj": (hidden, hidden) for name in ("q", "k", "v", "out")}
            matrices |= {"mlp.fc1": (ffn, hidden), "mlp.fc2": (hidden, ffn)}
            for name, shape in matrices.items():
                found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
            for name in ("layer_norm1", "layer_norm2"):
                found |= {f"{at}{name}.weight": (hidden,), f"{at}{name}.bias": (hidden,)}
        return found | {f"{self.last_norm}.{kind}": (hidden,) for kind in ("weight", "bias")}

    def weight_of_values(self, layer: int) -> str:
        return f"{self.layers}{layer}.self_attn.v_proj.weight"
