"""Tiny towers of Gemma 3."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents
from support.files.hf_export import gguf_name
from support.models.tiny_siglip_tower import SiglipTower
from support.models.tiny_tower import Array

_PROJECTOR = "model.multi_modal_projector.mm_"
NORM, PROJECTION = f"{_PROJECTOR}soft_emb_norm.weight", f"{_PROJECTOR}input_projection_weight"
_BILINEAR = 2
# How files call what the library calls model.vision_tower. and model.multi_modal_projector.
LAYOUTS = {
    "hub": ("vision_tower.vision_model.", "multi_modal_projector."),
    "inner": ("model.vision_tower.vision_model.", "model.multi_modal_projector."),
    "short": ("vision_tower.", "multi_modal_projector."),
}


@dataclasses.dataclass(frozen=True)
class Gemma3Tower(SiglipTower):
    root: ClassVar[str] = "model.vision_tower."

    model_type: str = "gemma3"

    @property
    def cell_width(self) -> int:
        return self.hidden_size

    def config(self) -> dict[str, Any]:
        return {
            "model_type": self.model_type, "mm_tokens_per_image": self.n_cells,
            "text_config": {"hidden_size": self.width}, "vision_config": self.vision_config(),
        }  # fmt: skip

    def vision_config(self) -> dict[str, Any]:
        return super().vision_config() | {"vision_use_head": False, "model_type": "siglip_vision_model"}

    def processor(self) -> dict[str, Any]:
        return {
            "image_mean": list(self.mean), "image_std": list(self.deviation), "resample": _BILINEAR,
            "rescale_factor": 1 / 255, "size": {"height": self.tile_size, "width": self.tile_size},
            "do_convert_rgb": None, "do_pan_and_scan": None,
        }  # fmt: skip

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return super().shapes() | {NORM: (self.hidden_size,), PROJECTION: (self.hidden_size, self.width)}

    def renamed(self, layout: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
        tower, projector = LAYOUTS[layout]
        found = {}
        for name, values in tensors.items():
            is_of_tower = name.startswith(self.root)
            found[(tower if is_of_tower else projector) + name.split(".", 2)[2]] = values
        return found

    def projector_keys(self) -> dict[str, Any]:
        return {
            "clip.projector_type": "gemma3", "clip.use_gelu": True, "clip.vision.image_size": self.tile_size,
            "clip.vision.projector.scale_factor": self.reduction,
        }  # fmt: skip

    def projector_tensors(self, name: str, values: Array) -> dict[str, Array]:
        [(of_hub, _)] = self.renamed("hub", {name: values}).items()
        if name == NORM:
            values = values + np.float32(1)
        return {gguf_name("clip", of_hub.replace("_weight", ".weight")): values}

    def type_in_projector(self, name: str, values: Array, matrix_type: str) -> str:
        if "input_projection" in name and matrix_type != "f32":
            return "f16"  # its rows are no rows of the product
        return super().type_in_projector(name, values, matrix_type)

    def stored(self, contents: GgufContents) -> dict[str, NDArray[np.float64]]:
        found = super().stored(contents)
        return found | {NORM: found[NORM] - 1}

    @property
    def last_product(self) -> str:
        return PROJECTION
