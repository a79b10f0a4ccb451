"""Structure-aware mutants: a typed refusal or a full read, and agreement with the `gguf` package if both accept.

IMP_FUZZ_CASES sets their number, IMP_FUZZ_SEED their seed.
"""

from __future__ import annotations

import copy
import os
import random
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import ARRAY, FORMATS, STRING, TENSOR_TYPES, U32, Gguf, Key, small_model, string
from support.run.release_run import repetitions

BOUNDARIES = [0, 1, 2, 3, 31, 32, 33, 64, 65, 255, 4096, 65_535, 65_536, 2**24, 2**24 + 1]
BOUNDARIES += [2**bits + change for bits in (31, 32, 40, 62, 63) for change in (-1, 0, 1)] + [2**64 - 32, 2**64 - 1]


def number(rng: random.Random, bits: int, near: int) -> int:
    """Returns a number that fits in `bits`: a boundary, a number close to the right one, or a random one."""
    value = rng.choice([*BOUNDARIES, near - 1, near + 1, near * 2, near + 32, near - 32, rng.getrandbits(bits)])
    return value % 2**bits


def mutate_counts(source: Gguf, rng: random.Random) -> None:
    if rng.random() < 0.5:
        source.n_tensors = number(rng, 64, len(source.tensors))
    else:
        source.n_keys = number(rng, 64, len(source.keys))


def mutate_version(source: Gguf, rng: random.Random) -> None:
    source.version = number(rng, 32, 3)


def mutate_key(source: Gguf, rng: random.Random) -> None:
    key = rng.choice(source.keys)
    change = rng.randrange(5)
    if change == 0:
        key.raw_name = string(key.name, number(rng, 64, len(string(key.name)) - 8))
    elif change == 1:
        key.raw = struct.pack("<I", number(rng, 32, key.kind)) + key.encode()[len(string(key.name)) + 4 :]
    elif change == 2 and key.kind == ARRAY:
        key.count = number(rng, 64, len(key.value))
    elif change == 3 and key.kind == STRING:
        key.raw = struct.pack("<I", STRING) + string(key.value, number(rng, 64, len(key.value)))
    else:
        key.name = rng.choice([b"", b"\xff", b"a\0b", b"new\n", source.keys[0].name, "fine"])


def mutate_value(source: Gguf, rng: random.Random) -> None:
    place = rng.randrange(len(source.keys))
    kind = rng.choice([k for k in FORMATS if k != 7])
    alignment = Key("general.alignment", U32, number(rng, 32, 32))
    other = Key(source.keys[place].name, kind, rng.randrange(100))
    source.keys[place] = rng.choice([alignment, other])


def mutate_key_order(source: Gguf, rng: random.Random) -> None:
    if rng.random() < 0.5:
        source.keys.append(copy.copy(rng.choice(source.keys)))
    else:
        rng.shuffle(source.keys)


def mutate_tensor(source: Gguf, rng: random.Random) -> None:
    tensor = rng.choice(source.tensors)
    tensor.data = tensor.payload()
    change = rng.randrange(6)
    if change == 0:
        dims = list(tensor.dims)
        place = rng.randrange(len(dims))
        dims[place] = number(rng, 64, dims[place])
        tensor.dims = dims
    elif change == 1:
        tensor.n_dims = number(rng, 32, len(tensor.dims))
    elif change == 2:
        types = [row[0] for row in TENSOR_TYPES.values()]
        tensor.type_id = rng.choice([number(rng, 32, 8), *types])
    elif change == 3:
        tensor.offset = number(rng, 64, 352)
    elif change == 4:
        tensor.raw_name = string(tensor.name, number(rng, 64, len(string(tensor.name)) - 8))
    else:
        tensor.name = rng.choice([b"", b"\xff", b"n" * 65, b"new\n", source.tensors[0].name, "fine"])


def mutate_tensor_order(source: Gguf, rng: random.Random) -> None:
    change = rng.randrange(3)
    if change == 0:
        source.tensors.append(copy.copy(rng.choice(source.tensors)))
    elif change == 1:
        del source.tensors[rng.randrange(len(source.tensors))]
    else:
        rng.shuffle(source.tensors)  # the writer computes their offsets again: still valid


STRUCTURAL = [
    mutate_counts,
    mutate_version,
    mutate_key,
    mutate_value,
    mutate_key_order,
    mutate_tensor,
    mutate_tensor,
    mutate_tensor_order,
]


def mutant(source: Gguf, rng: random.Random) -> bytes:
    """Returns the file with one or two structural changes, changed bytes in the header, or its end cut off."""
    broken = copy.deepcopy(source)
    kind = rng.random()
    if kind < 0.7:
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(STRUCTURAL)(broken, rng)
        return broken.encode()
    data = bytearray(broken.encode())
    header_bytes = len(broken.header())
    place = rng.randrange(header_bytes)
    if kind < 0.85:
        data[place] ^= 1 << rng.randrange(8)
    elif kind < 0.93:
        data[place:place] = rng.randbytes(rng.choice([1, 8, 32]))
    else:
        del data[place : place + rng.choice([1, 8, 32, len(data)])]
    return bytes(data)


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
