"""What tiny vision towers of all families have: a model directory, a projector in GGUF, and pixels."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_weights import filled
from support.files.safetensors_writer import write_tensors
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import float32_bound

Array = NDArray[np.float32]
Pixels = NDArray[np.uint8]
Grid = tuple[int, int]  # rows, columns
TurnOff = Callable[[Any], None]  # takes a fact from a tower of the library
_STORED_CELLS, _STORED_NUMBERS = 6, 5


@dataclasses.dataclass(frozen=True)
class TinyTower(ABC):
    model_type: str
    patch_size: int
    reduction: int  # so many rows by so many columns of patches become one cell
    n_layers: int
    hidden_size: int
    ffn_size: int
    n_heads: int
    slice_width: int = 40  # of a cell, and of the decoder's rows
    mean: tuple[float, ...] = (0.5, 0.4, 0.3)
    deviation: tuple[float, ...] = (0.5, 0.25, 0.125)

    @property
    @abstractmethod
    def part_shape(self) -> tuple[int, int]:
        """Height and width of a part, in pixels."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The content of config.json, without what only the text part reads."""

    @abstractmethod
    def vision_config(self) -> dict[str, Any]: ...

    @abstractmethod
    def processor(self) -> dict[str, Any]:
        """The content of preprocessor_config.json."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    @abstractmethod
    def projector_keys(self) -> dict[str, Any]:
        """Those of a projector that its family has beside the sizes."""

    @abstractmethod
    def projector_tensors(self, name: str, values: Array) -> dict[str, Array]:
        """What a projector has of a tensor of the library."""

    @abstractmethod
    def weight_of_values(self, layer: int) -> str:
        """A matrix whose last rows make the values of a layer."""

    @property
    def product_of_squares(self) -> str:
        """The matrix that reads the patches of a cell, side by side; empty if a cell is made of their mean."""
        return ""

    @property
    @abstractmethod
    def last_product(self) -> str:
        """The matrix that makes a cell, or its first slice."""

    @property
    def n_slices(self) -> int:
        return 1

    @property
    def width(self) -> int:
        """Of a cell."""
        return self.n_slices * self.slice_width

    @property
    def patch_grid(self) -> Grid:
        height, width = self.part_shape
        return height // self.patch_size, width // self.patch_size

    @property
    def cell_grid(self) -> Grid:
        rows, columns = self.patch_grid
        return rows // self.reduction, columns // self.reduction

    @property
    def n_patches(self) -> int:
        return self.patch_grid[0] * self.patch_grid[1]

    @property
    def n_cells(self) -> int:
        return self.cell_grid[0] * self.cell_grid[1]

    @property
    def cell_width(self) -> int:
        """Of a square of patches."""
        return self.hidden_size * self.reduction**2

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
            "attention.head_count": self.n_heads, "attention.layer_norm_epsilon": 1e-6, "patch_size": self.patch_size,
            "projection_dim": self.slice_width, "image_mean": list(self.mean), "image_std": list(self.deviation),
        }  # fmt: skip
        general = {"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": True}
        tensors = {}
        for full_name, whole in self.tensors().items():
            for name, values in self.projector_tensors(full_name, whole).items():
                tensors[name] = Tensor(values, self.type_in_projector(name, values, matrix_type))
        vision = {f"clip.vision.{key}": value for key, value in keys.items()}
        return GgufContents(general | vision | self.projector_keys(), tensors)

    def type_in_projector(self, name: str, values: Array, matrix_type: str) -> str:
        if values.ndim == 4 and matrix_type != "f32":
            return "f16"  # a convolution is never quantized
        return matrix_type if values.ndim == 2 and "embd" not in name else "f32"

    def stored(self, contents: GgufContents) -> dict[str, NDArray[np.float64]]:
        """Returns the numbers that a projector of this tower stores, with the names and shapes of the library."""
        found = {}
        for name, values in self.tensors().items():
            parts = [contents.tensors[part].stored() for part in self.projector_tensors(name, values)]
            if len(parts) > 1:  # the frames of a convolution
                parts = [np.stack([part.reshape(*values.shape[:2], -1) for part in parts], axis=2)]
            found[name] = parts[0].reshape(values.shape)
        return found

    def pixels(self, seed: int = 1) -> Pixels:
        """A part."""
        return np.random.default_rng(seed).integers(0, 256, (*self.part_shape, 3), dtype=np.uint8)

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of a part's cells that the table of results has: other ones in each cell."""
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
