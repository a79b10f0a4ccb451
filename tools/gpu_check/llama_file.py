"""Writes files of random weights for llama.cpp at the speed of the disk: it repeats a few rows of each matrix."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_check.rows import tests_support

ROWS = 64
# So small that sixteen layers of random matrices stay finite in float16.
SCALES = (2e-5, 2e-4)


def write_random(path: Path, shape: Any, mix: str) -> int:
    """Writes a model with a vocabulary for llama.cpp. Returns the bytes of its matrices, which each token reads."""
    import gguf

    from imp_service.core.synthetic import MIXES, metadata, tensors

    tests_support("text.tiny_vocabularies")  # adds its folder to the path
    maker = import_module("make_model")
    writer = gguf.GGUFWriter(path, shape.architecture)
    for key, value in (metadata(shape, mix) | maker.vocabulary(shape)).items():
        if key != "general.architecture":  # the writer has added this key
            writer.add_key_value(key, value, maker.value_type(value))
    n_bytes = 0
    for name, dtype, dims, mean, _ in tensors(shape, MIXES[mix]):
        values = np.full(dims[::-1], mean, np.float32) if dtype == "f32" else random_rows(dtype, dims[1], dims[0])
        writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType[dtype.upper()])
        n_bytes += values.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return n_bytes


def random_rows(dtype: str, n: int, k: int) -> NDArray[np.uint8]:
    """Returns rows [n, bytes of a row]."""
    elements, n_bytes = tests_support("kernels.weights").block_of(dtype)
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (ROWS * k // elements, n_bytes), dtype=np.uint8)
    tests_support("kernels.block_scales").set_scales(dtype, blocks, rng, SCALES, signs=True)
    some = blocks.reshape(ROWS, -1)
    return np.tile(some, (-(-n // ROWS), 1))[:n]
