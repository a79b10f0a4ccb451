"""safetensors files: valid ones are read to the bit, and each single fault in the header is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.refusals import address_space, assert_refused
from support.files.safetensors_writer import DATA, SMALL, assemble, entry, header_of, write

MIB = 2**20


def refused(path: Path, reason: str, *words: str) -> None:
    assert_refused(path, reason, *words, opener=_core.open_model_file)


def test_mod_4_a_valid_file(tmp_path: Path) -> None:
    model = _core.open_model_file(write(tmp_path / "model.safetensors"))
    assert model.format == "safetensors"
    # In the order of the data; the contiguous dimension, which the file has last, comes first.
    assert [(t.name, t.dtype, t.shape, t.n_bytes) for t in model.tensors] == [
        ("a.weight", "f32", (2, 3), 24),
        ("b.weight", "f16", (5, 3, 2), 60),
        ("c.norm", "bf16", (7,), 14),
    ]
    assert core.read_tensor(model, "a.weight") == DATA[:24]
    assert core.read_tensor(model, "b.weight") == DATA[24:84]
    assert core.read_tensor(model, "c.norm", 3, 4) == DATA[87:91]
    assert model.metadata["hidden_size"] == 64
    assert model.metadata["__metadata__.format"] == "pt"
    assert core.typed_value(model, "number", "rope_theta") == 10000.0  # JSON's 10000 may stand for 10000.0
    model.check()


def test_mod_4_a_file_that_the_safetensors_package_wrote(tmp_path: Path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy", reason="the safetensors package is an extra")
    rng = np.random.default_rng(2)
    arrays = {f"t{i}": rng.standard_normal((3, 2 + i)).astype(np.float16 if i % 2 else np.float32) for i in range(7)}
    arrays["scalar"] = np.array(2.5, np.float32)
    arrays["nothing"] = np.zeros((0, 4), np.float32)
    write(tmp_path / "model.safetensors")
    numpy_files.save_file(arrays, tmp_path / "model.safetensors", {"format": "np"})
    model = _core.open_model_file(tmp_path)
    assert sorted(t.name for t in model.tensors) == sorted(arrays)
    for tensor in model.tensors:
        assert tensor.shape == arrays[tensor.name].shape[::-1]
        assert core.read_tensor(model, tensor.name) == arrays[tensor.name].tobytes()


def test_mod_4_every_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors")
    n_bytes = path.stat().st_size
    with path.open("r+b") as file:
        for length in range(n_bytes - 1, -1, -1):
            file.truncate(length)
            with pytest.raises(_core.ModelError) as raised:
                _core.open_model_file(path)
            assert raised.value.reason in {"MODEL_TRUNCATED", "MODEL_OFFSET"}


def test_m59_header_lengths(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for length in [0, 1, 7]:
        refused(write(path, length=length), "MODEL_HEADER", "header")
    whole = len(header_of(SMALL)) + len(DATA)
    refused(write(path, length=whole + 1), "MODEL_TRUNCATED", f"needs {whole + 1} bytes at byte 8")


def test_m60_header_lengths_above_the_limit(tmp_path: Path) -> None:
    for length in [32 * MIB + 1, 2**32, 2**63, 2**64 - 8, 2**64 - 1]:
        path = write(tmp_path / "m.safetensors", length=length)
        with address_space(3 * MIB):
            refused(path, "MODEL_LIMIT", f"header length: {length}, limit 33554432")
    path = write(tmp_path / "m.safetensors", length=32 * MIB)
    with address_space(3 * MIB):
        refused(path, "MODEL_TRUNCATED", "header: needs 33554432")


def test_m61_not_an_object_or_more_than_one(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    good = header_of(SMALL)
    for header in [b" " + good, b"[]", b"\xef\xbb\xbf" + good, b"null", b'"x"']:
        refused(write(path, header), "MODEL_HEADER", "does not begin with {")
    for rest in [b"x", b"{}", b" ,", b"\0", b"}"]:
        refused(write(path, good + rest), "MODEL_HEADER", "text after the value")
    for broken in [good[:-1], good.replace(b":", b"=", 1), good.replace(b"}", b",}", 1), b"{'a':1}", b"{,}", b'{"a"']:
        refused(write(path, broken), "MODEL_HEADER", "header: byte ")
    assert len(_core.open_model_file(write(path, good + b" \n  ")).tensors) == 3


def test_m62_limits(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for opening in [b'{"a":', b"["]:
        for start in [b'{"x":', b'{"__metadata__":', b'{"t":{"dtype":"F32","shape":']:
            refused(write(path, start + opening * 100_000), "MODEL_LIMIT", "nested deeper than 8 levels")
    assert len(_core.open_model_file(write(path, {'[[[[[[[[[{\\"[': entry("F32", [1], 0, 4)}, bytes(4))).tensors) == 1
    many = {f"t{i}": entry("F32", [0], 0, 0) for i in range(65_537)}
    refused(write(path, many, b""), "MODEL_LIMIT", "more than 65536 tensors")
    del many["t0"]
    assert len(_core.open_model_file(write(path, many, b"")).tensors) == 65_536
    keys = b'{"__metadata__":{' + b",".join(b'"%d":"v"' % i for i in range(1_000_000)) + b"}}"
    refused(write(path, keys), "MODEL_LIMIT", "more than 65536 keys in __metadata__")


@pytest.mark.parametrize("value", [1, {"a": "b"}, ["x"], None, True])
def test_m63_metadata_values(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path / "m.safetensors", {**SMALL, "__metadata__": {"k": value}})
    refused(path, "MODEL_HEADER", 'after "k": expected a string')


def test_m64_shape_and_data_that_disagree(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    refused(
        write(path, {"t": entry("F32", [1_000_000], 0, 4)}, bytes(4)),
        "MODEL_SHAPE",
        "data has 4 bytes, expected 4000000",
    )
    refused(
        write(path, {"t": entry("F32", [1], 0, 4000)}, bytes(4000)), "MODEL_SHAPE", "data has 4000 bytes, expected 4"
    )
    refused(write(path, {"t": entry("F16", [3, 5], 0, 31)}, bytes(31)), "MODEL_SHAPE", "shape [5, 3]")


@pytest.mark.parametrize(
    "offsets",
    ["[-1, 24]", "[0, 24.0]", "[0, 2.4e1]", '["0", 24]', "null", "true", "[0]", "[0, 24, 24]", "[]", "24", "[0, null]",
     "[0, 99999999999999999999]", "[0, 024]", "[0, +24]", "{}"],
)  # fmt: skip
def test_m65_offsets_that_are_no_two_integers(tmp_path: Path, offsets: str) -> None:
    header = '{"a": {"dtype": "F32", "shape": [3, 2], "data_offsets": %s}}' % offsets  # noqa: UP031
    refused(write(tmp_path / "m.safetensors", header.encode(), DATA[:24]), "MODEL_HEADER", 'after "data_offsets"')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b.weight": entry("F16", [2, 3, 5], 84, 24)}, "before its begin"),
        ({"c.norm": entry("BF16", [8], 84, 100)}, "tensor c.norm: ends at 84 + 16, file has 98"),
        ({"c.norm": entry("BF16", [6], 86, 98)}, "tensor c.norm: begins at 86, leaving a gap, expected 84"),
        ({"c.norm": entry("BF16", [8], 82, 98)}, "tensor c.norm: begins at 82, overlapping"),
        ({"a.weight": entry("F32", [5], 4, 24)}, "tensor a.weight: begins at 4, leaving a gap, expected 0"),
        ({"c.norm": entry("BF16", [1], 2**64 - 2, 2**64 - 1)}, ""),
        ({"d": entry("F32", [3, 2], 0, 24)}, "begins at 0, overlapping"),
        ({"c.norm": entry("BF16", [6], 84, 96)}, "data: 2 bytes after the last tensor"),
    ],
)
def test_m66_places(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    reason = "MODEL_OFFSET" if words else "MODEL_SHAPE"
    refused(write(tmp_path / "m.safetensors", {**SMALL, **change}), reason, words)


def test_m67_anything_after_the_last_tensor(tmp_path: Path) -> None:
    for rest in [b"\0", b"GGUF" + bytes(60)]:
        refused(write(tmp_path / "m.safetensors", data=DATA + rest), "MODEL_OFFSET", f"{len(rest)} bytes after")


def test_m68_names_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    first, second = (
        '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}',
        '{"dtype":"F32","shape":[1],"data_offsets":[4,8]}',
    )
    for name in ["abc", "\\u0061bc", "a\\u0062c"]:
        header = f'{{"abc":{first},"{name}":{second}}}'.encode()
        refused(write(path, header, bytes(8)), "MODEL_DUPLICATE", "tensor abc: occurs twice")
    member = '{"abc":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    refused(write(path, member.encode(), bytes(4)), "MODEL_DUPLICATE", "dtype occurs twice")
    twice = '{"__metadata__":{"k":"1","k":"2"},"abc":%s}' % first  # noqa: UP031
    refused(write(path, twice.encode(), bytes(4)), "MODEL_DUPLICATE", "__metadata__.k")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"\xff", "MODEL_STRING"),
        (b"\xc0\xaf", "MODEL_STRING"),
        (b"\\ud800", "MODEL_STRING"),
        (b"\\udc00x", "MODEL_STRING"),
        (b"\\ud800\\u0041", "MODEL_STRING"),
        (b"a\\u0000b", "MODEL_STRING"),
        (b"a\0b", "MODEL_STRING"),
        (b"a\nb", "MODEL_STRING"),
        (b"a\\nb", "MODEL_STRING"),
        (b"", "MODEL_STRING"),
        (b"n" * 513, "MODEL_LIMIT"),
        (b"\\x41", "MODEL_HEADER"),
        (b"\\u00g0", "MODEL_HEADER"),
        (b"\\u-001", "MODEL_HEADER"),
    ],
)
def test_m69_names(tmp_path: Path, name: bytes, reason: str) -> None:
    header = b'{"%s": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}' % name
    refused(write(tmp_path / "m.safetensors", header, bytes(4)), reason)


def test_m69_names_that_are_fine(tmp_path: Path) -> None:
    for written, name in [
        (b"n" * 512, "n" * 512),
        (b"\\ud83d\\udd11 \\u00fc\\/\\\\", "🔑 ü/\\"),
        ("ü🔑".encode(), "ü🔑"),
    ]:
        header = b'{"%s": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}' % written
        model = _core.open_model_file(write(tmp_path / "m.safetensors", header, bytes(4)))
        assert [t.name for t in model.tensors] == [name]


def test_m70_types_and_members(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for dtype in ["F33", "f32", "", 3, None]:
        refused(write(path, {"t": {**entry("F32", [1], 0, 4), "dtype": dtype}}, bytes(4)), "MODEL_TYPE")
    for dtype in ["I64", "F8_E5M2", "BOOL"]:
        header = {"t": {**entry("F32", [1], 0, 4), "dtype": dtype}}
        refused(write(path, header, bytes(4)), "MODEL_UNSUPPORTED", f"tensor t: type {dtype}, supported are F32")
    for member in ["dtype", "shape", "data_offsets"]:
        lacking = {key: value for key, value in entry("F32", [1], 0, 4).items() if key != member}
        refused(write(path, {"t": lacking}, bytes(4)), "MODEL_HEADER", "expected dtype, shape and data_offsets")
    refused(
        write(path, {"t": {**entry("F32", [1], 0, 4), "strides": [1]}}, bytes(4)), "MODEL_HEADER", 'after "strides"'
    )
    refused(write(path, {"t": [1]}, bytes(4)), "MODEL_HEADER", "expected an object")


def test_m71_shapes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    refused(write(path, {"t": entry("F32", [1] * 9, 0, 4)}, bytes(4)), "MODEL_LIMIT", "more than 8 dimensions")
    assert _core.open_model_file(write(path, {"t": entry("F32", [1] * 8, 0, 4)}, bytes(4))).tensors[0].shape == (1,) * 8
    for shape in [[2**32, 2**32], [2**40, 2**40, 2**40], [2**40 + 1], [2**63], [2**64 - 1, 2]]:
        refused(write(path, {"t": entry("F32", shape, 0, 4)}, bytes(4)), "MODEL_SHAPE")
    for shape in ["[-1]", "[1.0]", '["1"]', "[null]", "[[1]]", "1", "[1,]", "[01]"]:
        header = '{"t": {"dtype": "F32", "shape": %s, "data_offsets": [0, 4]}}' % shape  # noqa: UP031
        refused(write(path, header.encode(), bytes(4)), "MODEL_HEADER")


def test_m72_tensors_of_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for place in [0, 24, 84, 98]:
        model = _core.open_model_file(write(path, {**SMALL, "z": entry("F32", [0, 4], place, place)}))
        assert core.read_tensor(model, "z") == b""
        assert core.read_tensor(model, "b.weight") == DATA[24:84]
    for place in [1, 30, 99, 2**40]:
        refused(write(path, {**SMALL, "z": entry("F32", [0, 4], place, place)}), "MODEL_OFFSET")


def test_m60_m61_a_named_file_is_explained_by_its_reader(tmp_path: Path) -> None:
    """A file named .safetensors is refused as safetensors unless it clearly has another format."""
    path = write(tmp_path / "m.safetensors", b"just text", b"")
    refused(path, "MODEL_HEADER", "does not begin with {")
    path.write_bytes(b"PK\x03\x04" + bytes(60))
    refused(path, "MODEL_FORMAT", "a ZIP archive")
    path.write_bytes(assemble(header_of(SMALL), DATA))
    refused(path.rename(tmp_path / "m.gguf"), "MODEL_FORMAT", "m.gguf: looks like a safetensors file")


def test_mod_5_safetensors_are_known_by_content(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.bin")
    assert _core.open_model_file(path).format == "safetensors"
    # Also if the first byte of the length is a brace, as in JSON.
    header = header_of(SMALL).ljust(0x17B)
    assert struct.pack("<Q", len(header))[:1] == b"{"
    assert _core.open_model_file(write(path, header)).format == "safetensors"
    path.write_text(json.dumps({"a": 1}))
    refused(path, "MODEL_FORMAT", "looks like a JSON file")
