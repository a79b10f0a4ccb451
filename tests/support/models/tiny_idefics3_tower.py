"""Tiny towers of SmolVLM and Idefics3."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from support.files.hf_export import gguf_name
from support.models.tiny_siglip_tower import SiglipTower
from support.models.tiny_tower import Array

PROJECTION = "model.connector.modality_projection.proj.weight"
_LANCZOS = 1


@dataclasses.dataclass(frozen=True)
class Idefics3Tower(SiglipTower):
    root: ClassVar[str] = "model.vision_model."

    model_type: str = "smolvlm"
    longest_side: int = 224

    @property
    def products(self) -> int:
        """Multiplications of a tile."""
        hidden, n = self.hidden_size, self.n_patches
        of_layer = n * hidden * (4 * hidden + 2 * self.ffn_size + 2 * n)
        of_patches, of_cells = n * hidden * 3 * self.patch_size**2, self.n_cells * self.cell_width * self.width
        return of_patches + self.n_layers * of_layer + of_cells

    def config(self) -> dict[str, Any]:
        return {
            "model_type": self.model_type, "scale_factor": self.reduction, "text_config": {"hidden_size": self.width},
            "vision_config": self.vision_config(),
        }  # fmt: skip

    def processor(self) -> dict[str, Any]:
        return {
            "image_mean": list(self.mean), "image_std": list(self.deviation), "resample": _LANCZOS,
            "rescale_factor": 1 / 255, "size": {"longest_edge": self.longest_side},
            "max_image_size": {"longest_edge": self.tile_size}, "do_image_splitting": True,
        }  # fmt: skip

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return super().shapes() | {PROJECTION: (self.width, self.cell_width)}

    def projector_keys(self) -> dict[str, Any]:
        return {
            "clip.projector_type": "idefics3", "clip.use_gelu": True, "clip.vision.image_size": self.tile_size,
            "clip.vision.projector.scale_factor": self.reduction, "clip.vision.preproc_image_size": self.longest_side,
        }  # fmt: skip

    def projector_tensors(self, name: str, values: Array) -> dict[str, Array]:
        return {gguf_name("clip", name): values}

    @property
    def product_of_squares(self) -> str:
        return PROJECTION

    @property
    def last_product(self) -> str:
        return PROJECTION
