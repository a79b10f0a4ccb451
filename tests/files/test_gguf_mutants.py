"""Structure-aware mutants: a typed refusal or a full read, and agreement with the `gguf` package if both accept.

IMP_FUZZ_CASES sets their number, IMP_FUZZ_SEED their seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from imp_service import _core
from imp_service import _testing as core
from support.gguf_mutator import mutant
from support.gguf_writer import small_model
from support.release_run import repetitions

CASES = int(os.environ.get("IMP_FUZZ_CASES", repetitions(100_000, 400)))
SEED = int(os.environ.get("IMP_FUZZ_SEED", "1"))


def read_by_imp(path: Path) -> Any:
    try:
        model = core.open_gguf(path)
    except _core.ModelError as error:
        assert error.reason.startswith("MODEL_")
        return None
    model.check()
    return model


def read_by_oracle(path: Path) -> Any:
    try:
        with np.errstate(all="ignore"):
            return gguf.GGUFReader(path)
    except Exception:
        return None  # it refuses with whatever error comes first


def oracle_values(field: Any) -> Any:
    if field.types[0] == gguf.GGUFValueType.ARRAY and field.types[1:2] == [gguf.GGUFValueType.STRING]:
        return [field.parts[i].tobytes() for i in field.data]
    if field.types[0] == gguf.GGUFValueType.STRING:
        return field.parts[-1].tobytes()
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        return np.concatenate([field.parts[i] for i in field.data]).tobytes() if field.data else b""
    return field.parts[-1].tobytes()


def imp_values(value: Any, like: bytes | list[bytes]) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, float):
        return np.array(value, "<f4" if len(like) == 4 else "<f8").tobytes()
    if isinstance(value, int):
        return value.to_bytes(len(like), "little", signed=value < 0)
    return value


def assert_same(model: Any, oracle: Any) -> None:
    fields = {name: field for name, field in oracle.fields.items() if not name.startswith("GGUF.")}
    metadata = model.metadata
    assert list(metadata) == list(fields)
    for name, field in fields.items():
        if field.types[0] == gguf.GGUFValueType.ARRAY and not field.data:
            assert len(metadata[name]) == 0
            continue
        expected = oracle_values(field)
        actual = imp_values(metadata[name], expected)
        if field.types[0] in {gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.FLOAT64} and np.isnan(metadata[name]):
            continue
        assert actual == expected, name
    assert [(t.name, t.dtype.upper(), list(t.shape), t.file_offset, t.n_bytes) for t in model.tensors] == [
        (t.name, t.tensor_type.name, t.shape.tolist(), t.data_offset, t.n_bytes) for t in oracle.tensors
    ]
    for tensor in oracle.tensors:
        assert core.read_tensor(model, tensor.name) == tensor.data.tobytes()


def test_mod_2_m54_mutants(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    source = small_model(pad_last=False)
    counts = {"refused": 0, "read by both": 0, "read by imp alone": 0}
    for case in range(CASES):
        data = mutant(source, random.Random(f"{SEED}/{case}"))
        path.write_bytes(data)
        model = read_by_imp(path)
        # The package trusts every count, so it only reads files that imp accepts.
        oracle = None if model is None else read_by_oracle(path)
        if oracle is not None:
            assert_same(model, oracle)
        counts["refused" if model is None else "read by both" if oracle else "read by imp alone"] += 1
    print(counts)
    assert sum(counts.values()) == CASES
    # Some mutants are accepted and some refused, so that neither half of the comparison is empty.
    assert counts["read by both"] > CASES // 20
    assert counts["refused"] > CASES // 3
