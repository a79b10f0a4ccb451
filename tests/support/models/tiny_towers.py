"""Tiny vision towers: a model directory, a projector in GGUF, and the same tower in float64."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_export import gguf_name
from support.files.hf_weights import filled
from support.files.safetensors_writer import write_tensors
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import float32_bound
from support.run.needed import TESTING, needs

Array = NDArray[np.float32]
Pixels = NDArray[np.uint8]
_TOWER, _LAYERS = "model.vision_model.", "model.vision_model.encoder.layers."
PATCHES = f"{_TOWER}embeddings.patch_embedding.weight"
PROJECTION = "model.connector.modality_projection.proj.weight"
_LANCZOS = 1
_STORED_CELLS, _STORED_NUMBERS = 6, 5


@dataclasses.dataclass(frozen=True)
class TinyTower:
    model_type: str = "smolvlm"
    tile_size: int = 56
    patch_size: int = 7
    shuffle: int = 2
    n_layers: int = 3
    hidden_size: int = 48
    ffn_size: int = 88
    n_heads: int = 3
    width: int = 40
    mean: tuple[float, ...] = (0.5, 0.4, 0.3)
    deviation: tuple[float, ...] = (0.5, 0.25, 0.125)
    longest_side: int = 224

    @property
    def side(self) -> int:
        """Patches of a side."""
        return self.tile_size // self.patch_size

    @property
    def n_cells(self) -> int:
        return (self.side // self.shuffle) ** 2

    @property
    def cell_width(self) -> int:
        return self.hidden_size * self.shuffle**2

    @property
    def products(self) -> int:
        """Multiplications of a tile."""
        hidden, n = self.hidden_size, self.side**2
        of_layer = n * hidden * (4 * hidden + 2 * self.ffn_size + 2 * n)
        of_patches, of_cells = n * hidden * 3 * self.patch_size**2, self.n_cells * self.cell_width * self.width
        return of_patches + self.n_layers * of_layer + of_cells

    def vision_config(self) -> dict[str, Any]:
        return {
            "hidden_size": self.hidden_size, "intermediate_size": self.ffn_size, "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads, "image_size": self.tile_size, "patch_size": self.patch_size,
        }  # fmt: skip

    def config(self) -> dict[str, Any]:
        """The content of config.json, without what only the text part reads."""
        return {
            "model_type": self.model_type, "scale_factor": self.shuffle, "text_config": {"hidden_size": self.width},
            "vision_config": self.vision_config(),
        }  # fmt: skip

    def processor(self) -> dict[str, Any]:
        """The content of preprocessor_config.json."""
        return {
            "image_mean": list(self.mean), "image_std": list(self.deviation), "resample": _LANCZOS,
            "rescale_factor": 1 / 255, "size": {"longest_edge": self.longest_side},
            "max_image_size": {"longest_edge": self.tile_size}, "do_image_splitting": True,
        }  # fmt: skip

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, ffn, side = self.hidden_size, self.ffn_size, self.patch_size
        found = {
            PATCHES: (hidden, 3, side, side),
            PATCHES.replace("weight", "bias"): (hidden,),
            f"{_TOWER}embeddings.position_embedding.weight": (self.side**2, hidden),
        }
        for layer in range(self.n_layers):
            at = f"{_LAYERS}{layer}."
            matrices = {f"self_attn.{name}_proj": (hidden, hidden) for name in ("q", "k", "v", "out")}
            matrices |= {"mlp.fc1": (ffn, hidden), "mlp.fc2": (hidden, ffn)}
            for name, shape in matrices.items():
                found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
            for name in ("layer_norm1", "layer_norm2"):
                found |= {f"{at}{name}.weight": (hidden,), f"{at}{name}.bias": (hidden,)}
        found |= {f"{_TOWER}post_layernorm.{kind}": (hidden,) for kind in ("weight", "bias")}
        return found | {PROJECTION: (self.width, self.cell_width)}

    def tensors(self) -> dict[str, Array]:
        """With the names of the library, and the numbers that `hf_weights.fill` gives its parameters."""
        return {name: filled(self.model_type, name, shape).astype(np.float32) for name, shape in self.shapes().items()}

    def write(self, folder: Path, tensors: Mapping[str, Array] | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "model.safetensors", dict(self.tensors() if tensors is None else tensors))
        (folder / "config.json").write_text(json.dumps(self.config()))
        (folder / "preprocessor_config.json").write_text(json.dumps(self.processor()))
        return folder

    def projector(self, matrix_type: str = "f32") -> GgufContents:
        keys: dict[str, Any] = {
            "embedding_length": self.hidden_size, "feed_forward_length": self.ffn_size, "block_count": self.n_layers,
            "attention.head_count": self.n_heads, "attention.layer_norm_epsilon": 1e-6, "image_size": self.tile_size,
            "patch_size": self.patch_size, "projection_dim": self.width, "projector.scale_factor": self.shuffle,
            "image_mean": list(self.mean), "image_std": list(self.deviation), "preproc_image_size": self.longest_side,
        }  # fmt: skip
        general = {"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": True,
                   "clip.projector_type": "idefics3", "clip.use_gelu": True}  # fmt: skip
        tensors = {}
        for name, values in self.tensors().items():
            dtype = matrix_type if values.ndim == 2 and "embed" not in name else "f32"
            if values.ndim == 4 and matrix_type != "f32":
                dtype = "f16"  # a convolution is never quantized
            tensors[gguf_name("clip", name)] = Tensor(values, dtype)
        return GgufContents(general | {f"clip.vision.{key}": value for key, value in keys.items()}, tensors)

    def pixels(self, seed: int = 1) -> Pixels:
        """A tile."""
        return np.random.default_rng(seed).integers(0, 256, (self.tile_size, self.tile_size, 3), dtype=np.uint8)

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of a tile's cells that the table of results has: other ones in each cell."""
        cells = np.linspace(0, self.n_cells - 1, min(self.n_cells, _STORED_CELLS)).astype(np.int64)
        return cells[:, None], (7 * cells[:, None] + 9 * np.arange(_STORED_NUMBERS)) % self.width

    def as_decoder(self) -> TinyModel:
        """A model of text with sums as long, for the bounds of a forward pass."""
        longest, head_dim = max(self.cell_width, 3 * self.patch_size**2), self.hidden_size // self.n_heads
        sizes = {"n_layers": self.n_layers, "ffn_size": self.ffn_size, "n_heads": self.n_heads, "head_dim": head_dim}
        return TinyModel(hidden_size=longest, **sizes)

    def bound(self) -> float:
        """Both sides compute in float32."""
        return 2 * float32_bound(self.as_decoder())


TOWERS = {
    "smolvlm": TinyTower(),
    # Three pixels of each side belong to no patch.
    "idefics3": TinyTower("idefics3", tile_size=45, shuffle=3, hidden_size=16, n_heads=2, n_layers=2),
    # Attention in two splits of keys, and one patch a cell.
    "many patches": TinyTower(tile_size=51, patch_size=3, shuffle=1, hidden_size=32, n_heads=2, n_layers=2),
}


def open_tower(path: Path, tower: TinyTower, **given: Any) -> Any:
    with needs(TESTING):
        import imp_service._testing as core
    return core.VisionTower(_core.open_model_file(path), **{"hidden_size": tower.width, "kv_type": "f32", **given})


def encoded(loaded: Any, pixels: Pixels, n_rows: int = 1 << 20) -> Array:
    """Encodes a tile in pieces that are worth this many rows of the decoder."""
    loaded.begin(pixels)
    while not loaded.is_done:
        loaded.advance(n_rows)
    found: Array = loaded.encoding()
    return found
