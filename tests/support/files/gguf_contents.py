"""A GGUF file as keys and arrays, written with the `gguf` package: easy to take apart and change."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QuantType
from gguf import GGUFValueType as ValueType
from numpy.typing import NDArray

from support.kernels.block_scales import set_scales

_SCALARS = {
    np.dtype(name): getattr(ValueType, kind)
    for name, kind in [
        ("u1", "UINT8"), ("i1", "INT8"), ("u2", "UINT16"), ("i2", "INT16"), ("u4", "UINT32"), ("i4", "INT32"),
        ("u8", "UINT64"), ("i8", "INT64"), ("f4", "FLOAT32"), ("f8", "FLOAT64"), ("?", "BOOL"),
    ]
}  # fmt: skip


# The `gguf` package reads them, but does not write them.
_READ_ONLY = (
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
)


def quant_type(name: str) -> QuantType:
    return QuantType[name.upper()]


def hashed_blocks(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """Returns blocks of bytes that depend on `values`; their decoded values have about the same size."""
    kind = quant_type(dtype)
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(zlib.crc32(values.tobytes()))
    blocks = rng.integers(0, 256, (values.size // block_elements, block_bytes), np.uint8)

    def scaled(size: float) -> NDArray[np.uint8]:
        set_scales(dtype, blocks, rng, (0.5 * size, 1.5 * size), signs=False)
        return blocks.reshape(*values.shape[:-1], -1)

    unit = gguf.quants.dequantize(scaled(1.0), kind)
    return scaled(float(np.sqrt(np.mean(values**2) / np.mean(unit.astype(np.float64) ** 2))))


@dataclasses.dataclass
class Tensor:
    """Values [rows, k] (or [size]) and the type they are stored as. `raw` is stored instead where given."""

    values: NDArray[np.float32]
    dtype: str = "f32"
    raw: NDArray[np.uint8] | None = None

    def encoded(self) -> NDArray[Any]:
        if self.raw is None and self.dtype in _READ_ONLY:
            self.raw = hashed_blocks(self.values, self.dtype)
        return self.raw if self.raw is not None else gguf.quants.quantize(self.values, quant_type(self.dtype))

    def stored(self) -> NDArray[np.float64]:
        """Returns the values that the file encodes."""
        return gguf.quants.dequantize(self.encoded(), quant_type(self.dtype)).astype(np.float64)


@dataclasses.dataclass
class GgufContents:
    """Keys: int is uint32, float is float32, bool, str, list, or a NumPy scalar of the type wanted."""

    keys: dict[str, Any]
    tensors: dict[str, Tensor]

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, "", use_temp_file=False)
        writer.kv_data[0].clear()  # the writer's own general.architecture
        for key, value in self.keys.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, np.generic):
                writer.add_key_value(key, value.item(), _SCALARS[value.dtype])
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, tensor.encoded(), raw_dtype=quant_type(tensor.dtype))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path
