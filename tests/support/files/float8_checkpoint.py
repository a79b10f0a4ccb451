"""Writes checkpoints with E4M3 weights as their publishers do, with codes and scales by NumPy and `ml_dtypes`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import Tensor
from support.files.hf_contents import halves_apart, hf_config, hf_name, hf_tensors
from support.files.safetensors_writer import assemble, entry, header_of
from support.models.tiny_models import TinyModel

Floats = NDArray[np.float32]

# The weights of a decoder that all schemes convert.
CONVERTED = ("_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight")


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How weights are scaled: rows and columns per scale (0: all), the name and the type of the scale tensor."""

    rows: int
    columns: int
    suffix: str
    config: dict[str, Any]
    dtype: str = "F32"
    flat: bool = False  # a row's scales are [n], not [n, 1]; a tensor's are [], not [1]

    def scales_shape(self, n: int, k: int) -> list[int]:
        shape = [-(-n // (self.rows or n)), -(-k // (self.columns or k))]
        if self.columns:
            return shape
        return shape[: 1 if self.rows else 0] if self.flat else shape if self.rows else [1]


def group(strategy: str, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **more}
    inputs = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
SCHEMES = {
    "blocks": Scheme(128, 128, "_scale_inv", {**FP8, "weight_block_size": [128, 128]}),
    "blocks_of_bfloat16": Scheme(
        128, 128, "_scale_inv", {**FP8, "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}, "BF16"
    ),
    "small_blocks": Scheme(32, 64, "_scale", group("block", block_structure=[32, 64])),
    "channels": Scheme(1, 0, "_scale", group("channel"), "BF16"),
    "channels_in_a_row": Scheme(
        1, 0, "_scale", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, flat=True
    ),
    "tensor": Scheme(0, 0, "_scale", {"quant_method": "modelopt", "quant_algo": "FP8"}, flat=True),
    "tensor_of_one": Scheme(0, 0, "_scale", {"quant_method": "fp8", "activation_scheme": "static"}),
}


def quantize(values: Floats, scheme: Scheme) -> tuple[NDArray[np.uint8], Floats, Floats]:
    """Returns codes, scales (as stored, [pieces of rows, pieces of columns]) and the values that they encode."""
    n, k = values.shape
    rows, columns = scheme.rows or n, scheme.columns or k
    padded = np.zeros((-(-n // rows) * rows, -(-k // columns) * columns), np.float32)
    padded[:n, :k] = np.abs(values)
    largest = padded.reshape(len(padded) // rows, rows, -1, columns).max(axis=(1, 3))
    scales = (largest / 448).astype(np.float32)
    if scheme.dtype == "BF16":
        scales = scales.astype(ml_dtypes.bfloat16).astype(np.float32)
    each = np.repeat(np.repeat(scales, rows, axis=0), columns, axis=1)[:n, :k]
    codes = np.clip(values / each, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return codes.view(np.uint8), scales, (each * codes.astype(np.float32)).astype(np.float32)


def encoded(values: NDArray[Any], dtype: str) -> bytes:
    kinds = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": np.uint8}
    return np.ascontiguousarray(values).astype(kinds[dtype]).tobytes()


# Name -> type, shape, bytes.
Contents = dict[str, tuple[str, list[int], bytes]]


def contents(tensors: dict[str, Floats], scheme: Scheme) -> Contents:
    """Returns the tensors of a checkpoint, with activation scales where the scheme has them."""
    found: Contents = {}
    for name, values in tensors.items():
        if not name.endswith(CONVERTED):
            found[name] = ("F32", list(values.shape), encoded(values, "F32"))
            continue
        codes, scales, _ = quantize(values, scheme)
        found[name] = ("F8_E4M3", list(values.shape), codes.tobytes())
        found[name + scheme.suffix] = (scheme.dtype, scheme.scales_shape(*values.shape), encoded(scales, scheme.dtype))
        if "static" in scheme.config.values():
            found[name.removesuffix("weight") + "input_scale"] = ("F32", [], encoded(np.ones(1), "F32"))
    return found


def write(path: Path, config: dict[str, Any], parts: Contents) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, raw) in parts.items():
        header[name] = entry(dtype, shape, len(data), len(data) + len(raw))
        data += raw
    path.write_bytes(assemble(header_of(header), data))
    path.with_name("config.json").write_text(json.dumps(config))
    return path


@dataclasses.dataclass(frozen=True)
class Float8Model(TinyModel):
    """A tiny model whose oracle uses the weights that codes and scales encode."""

    scheme: Scheme = SCHEMES["blocks"]

    def tensors(self) -> dict[str, Tensor]:
        tensors = super().tensors()
        for name, tensor in tensors.items():
            if hf_name(self, name).endswith(CONVERTED):
                tensor.values = self.rounded(name, tensor.values)
        return tensors

    def rounded(self, name: str, values: Floats) -> Floats:
        """Returns the values after rounding, which takes rows in the order of the checkpoint."""
        if values.ndim == 3:
            return np.stack([quantize(expert, self.scheme)[2] for expert in values])
        if self.architecture != "llama" or ("attn_q." not in name and "attn_k." not in name):
            return quantize(values, self.scheme)[2]
        order = halves_apart(np.arange(len(values)), self.head_dim)
        rounded = np.empty_like(values)
        rounded[order] = quantize(values[order], self.scheme)[2]
        return rounded

    def config(self) -> dict[str, Any]:
        return {**hf_config(self), "quantization_config": self.scheme.config}

    def parts(self) -> Contents:
        plain = TinyModel(**{field.name: getattr(self, field.name) for field in dataclasses.fields(TinyModel)})
        return contents(hf_tensors(plain), self.scheme)

    def write(self, path: Path) -> Path:
        return write(path, self.config(), self.parts())


def float8_tiny(architecture: str, scheme: str, **changes: Any) -> Float8Model:
    """Returns a tiny model whose rows of weights end within a piece, and whose pieces end within a head."""
    sizes = {
        "n_layers": 2, "hidden_size": 192, "ffn_size": 320, "n_heads": 6, "n_kv_heads": 2, "head_dim": 32,
        "scheme": SCHEMES[scheme],
    }  # fmt: skip
    if architecture.endswith("moe") or changes.get("n_experts"):
        sizes |= {"n_experts": 4, "expert_ffn_size": 128 if architecture.endswith("moe") else 0}
    if architecture == "qwen2moe":
        sizes |= {"shared_ffn_size": 64}
    return Float8Model(architecture=architecture, **(sizes | changes))
