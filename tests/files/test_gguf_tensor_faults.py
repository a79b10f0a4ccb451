"""GGUF files with one fault in the table of tensors: each is refused with its reason, before any data is read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import TENSOR_TYPES, Gguf, Tensor, small_model, string
from support.files.refusals import assert_refused


def with_tensor(tensor: Tensor) -> Gguf:
    """Returns a file that is valid except for `tensor`, the third of five."""
    source = small_model()
    source.tensors.insert(2, tensor)
    return source


def shaped(dims: Sequence[int], dtype: str = "f32", **fields: Any) -> Tensor:
    """Returns a tensor of any shape with a few bytes of data."""
    return Tensor("odd.weight", dims, dtype, data=bytes(64), **fields)


def moved(tensor: int, change: int) -> Gguf:
    """Returns a file that is valid except for the offset of one tensor."""
    source = small_model()
    offsets = [0, 352, 800, 832]
    for place, offset in zip(source.tensors, offsets, strict=True):
        place.offset = offset
    source.tensors[tensor].offset = (offsets[tensor] + change) % 2**64
    return source


def test_control_the_offsets_above_are_right(tmp_path: Path) -> None:
    assert len(core.open_gguf(moved(1, 0).write(tmp_path / "m.gguf")).tensors) == 4
    path = with_tensor(Tensor("odd.weight", (16,), data=bytes(64))).write(tmp_path / "m.gguf")
    assert core.read_tensor(core.open_gguf(path), "odd.weight") == bytes(64)


def test_m22_rank(tmp_path: Path) -> None:
    for n_dims in [0, 5, 8, 2**31, 2**32 - 1]:
        path = with_tensor(shaped((2, 3), n_dims=n_dims)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", f"tensor odd.weight: {n_dims} dimensions, expected 1 to 4")


def test_m23_dimensions(tmp_path: Path) -> None:
    for dims in [(0,), (4, 0), (0, 4, 2), (2**63,), (4, 2**63), (2**64 - 1,), (1, 2**64 - 1), (2**31, 0)]:
        path = with_tensor(shaped(dims)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", "tensor odd.weight: ")


def test_m24_products_that_wrap(tmp_path: Path) -> None:
    for dims in [(2**32, 2**32), (2**62, 4, 1, 1), (2**42 + 1, 2**22), (2**40, 2**40, 2**40), (2**16,) * 4]:
        path = with_tensor(shaped(dims)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", "tensor odd.weight: ", "limit 1099511627776 elements")


def test_m25_product_just_above_the_limit(tmp_path: Path) -> None:
    # 2^40 + 1 = 257 · 4278255361; 2^40 itself is refused only because the file is not that large.
    for dims in [(2**40 + 1,), (257, 4278255361), (2**20, 2**20 + 1)]:
        path = with_tensor(shaped(dims)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", "limit 1099511627776 elements")
    source = small_model()
    source.tensors.append(shaped((2**20, 2**20)))
    assert_refused(source.write(tmp_path / "m.gguf"), "MODEL_OFFSET", "odd.weight: ends at byte")


@pytest.mark.parametrize("dtype", [name for name, row in TENSOR_TYPES.items() if row[1] > 1])
def test_m26_rows_that_do_not_fill_blocks(tmp_path: Path, dtype: str) -> None:
    block = TENSOR_TYPES[dtype][1]
    # The third tensor has whole blocks, but its rows do not.
    for dims in [(block + 1,), (1,), (block // 2, 4), (3 * block - 1, block)]:
        path = with_tensor(shaped(dims, dtype)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", f"rows of {dims[0]} elements, expected a multiple of {block} ({dtype})")


def test_m27_sizes_at_the_top_of_the_range(tmp_path: Path) -> None:
    for size in range(2**64 - 4, 2**64):
        path = with_tensor(shaped((size,), "f32")).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", "odd.weight")
        path = with_tensor(shaped((size // 4,), "f32")).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_SHAPE", "odd.weight")


def test_m28_sizes_that_add_up_past_the_range(tmp_path: Path) -> None:
    tensors = [Tensor(f"t{i}", (2**20, 2**20), data=b"", offset=(i * 2**42) % 2**64) for i in range(3000)]
    path = small_model(tensors=tensors).write(tmp_path / "m.gguf")
    assert_refused(path, "MODEL_OFFSET", "t0: ends at byte")


def test_m29_tensor_types(tmp_path: Path) -> None:
    for type_id in [4, 5, 31, 33, 36, 42, 255, 2**31, 2**32 - 1]:
        path = with_tensor(shaped((16,), type_id=type_id)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_TYPE", f"odd.weight: type {type_id}, known are f32, f16, ", "iq4_xs")


def test_mod_7_known_types_that_imp_lacks_are_named(tmp_path: Path) -> None:
    for type_id, name in [
        (9, "q8_1"),
        (15, "q8_k"),
        (24, "i8"),
        (25, "i16"),
        (26, "i32"),
        (27, "i64"),
        (28, "f64"),
        (40, "nvfp4"),
        (41, "q1_0"),
    ]:
        path = with_tensor(shaped((256,), type_id=type_id)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_UNSUPPORTED", f"odd.weight: type {name}, supported are f32, f16, ")


def test_m30_beyond_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for change in [2**20, 2**40, 2**62]:
        assert_refused(moved(3, change).write(path), "MODEL_OFFSET", "tensor blk.0.ffn_up.weight: offset")
    whole = small_model(pad_last=False).encode()
    path.write_bytes(whole[:-1])
    assert_refused(
        path,
        "MODEL_OFFSET",
        f"m.gguf: tensor blk.0.ffn_up.weight: ends at byte {len(whole)}, file has {len(whole) - 1}",
    )


def test_m31_offsets_that_wrap(tmp_path: Path) -> None:
    for offset in [2**64 - 32, 2**64 - 64, 2**63, 2**64 - 1]:
        source = small_model()
        source.tensors[3].offset = offset
        assert_refused(source.write(tmp_path / "m.gguf"), "MODEL_OFFSET", "blk.0.ffn_up.weight")
    # The first tensor may not wrap around either, although nothing precedes it.
    source = small_model(tensors=[Tensor("t", (8,), offset=2**64 - 32)])
    assert_refused(source.write(tmp_path / "m.gguf"), "MODEL_OFFSET", "tensor t: offset")


@pytest.mark.parametrize(
    ("tensor", "change", "words"),
    [
        (1, 1, "offset 353, expected a multiple of 32"),
        (1, 8, "offset 360, expected a multiple of 32"),
        (1, -352, "offset 0 overlaps the tensor before it, expected 352"),
        (1, -32, "offset 320 overlaps the tensor before it, expected 352"),
        (1, 32, "offset 384 leaves a gap, expected 352"),
        (0, 32, "offset 32 leaves a gap, expected 0"),
        (2, -800, "overlaps"),
    ],
)
def test_m32_offsets(tmp_path: Path, tensor: int, change: int, words: str) -> None:
    assert_refused(moved(tensor, change).write(tmp_path / "m.gguf"), "MODEL_OFFSET", words)


def test_m32_offsets_not_in_file_order(tmp_path: Path) -> None:
    source = Gguf(tensors=[Tensor("a", (8,), offset=32), Tensor("b", (8,), offset=0)])
    assert_refused(source.write(tmp_path / "m.gguf"), "MODEL_OFFSET", "tensor a: offset 32")


def test_m33_last_tensor_one_byte_short(tmp_path: Path) -> None:
    for dtype, dims in [("q4_k", (256, 3)), ("f32", (5,)), ("f16", (3, 7))]:
        source = small_model(pad_last=False)
        source.tensors[-1] = Tensor("last", dims, dtype)
        path = tmp_path / "m.gguf"
        whole = source.encode()
        path.write_bytes(whole)
        assert core.open_gguf(path).warnings == []
        path.write_bytes(whole[:-1])
        assert_refused(path, "MODEL_OFFSET", "tensor last: ends at byte")


def test_m35_tensor_names(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data = {"data": bytes(64)}
    assert_refused(with_tensor(Tensor("", (16,), **data)).write(path), "MODEL_STRING", "tensor number 2", "empty")
    for name in [b"new\nline", b"nul\0", b"\xff", b"\x1b[31m"]:
        assert_refused(with_tensor(Tensor(name, (16,), **data)).write(path), "MODEL_STRING", "tensor number 2: name")
    for length in [65, 2**31, 2**63, 2**64 - 1]:
        tensor = Tensor("x", (16,), raw_name=string(b"n" * 65, length), **data)
        assert_refused(
            with_tensor(tensor).write(path), "MODEL_LIMIT", f"tensor number 2: name length: {length}, limit 64"
        )
    assert core.find_tensor(core.open_gguf(with_tensor(Tensor("n" * 64, (16,), **data)).write(path)), "n" * 64)
    twice = with_tensor(Tensor("token_embd.weight", (16,), **data)).write(path)
    assert_refused(twice, "MODEL_DUPLICATE", "tensor token_embd.weight: occurs twice")


def test_m44_values_that_are_not_finite(tmp_path: Path) -> None:
    """`check(values=True)` names the tensor and the element for every type."""
    path = tmp_path / "m.gguf"
    half_nan, half_infinity = struct.pack("<H", 0x7E01), struct.pack("<H", 0xFC00)
    cases = [
        ("f32", (4, 5), 13 * 4, struct.pack("<f", float("nan")), 13, "NaN"),
        ("f32", (4, 5), 19 * 4, struct.pack("<f", float("-inf")), 19, "infinite"),
        ("f16", (4, 5), 7 * 2, half_infinity, 7, "infinite"),
        ("bf16", (4, 5), 6 * 2, struct.pack("<H", 0x7F80), 6, "infinite"),
        ("q8_0", (64, 3), 4 * 34, half_nan, 128, "NaN"),
        ("q4_k", (512, 3), 5 * 144 + 2, half_nan, 1280, "NaN"),
        ("q6_k", (256, 40), 33 * 210 + 208, half_nan, 33 * 256, "NaN"),
        ("mxfp4", (64, 3), 3 * 17, b"\xff", 3 * 32 + 1, "infinite"),
    ]
    for dtype, dims, place, bits, element, kind in cases:
        _, block_elements, block_bytes = TENSOR_TYPES[dtype]
        n_bytes = dims[0] * dims[1] // block_elements * block_bytes
        data = bytearray(b"\x11\x12" * (n_bytes // 2))
        finite = with_tensor(Tensor("odd.weight", dims, dtype, bytes(data))).write(path)
        model = _core.open_model_file(finite)
        model.check()
        model.check(values=True)
        data[place : place + len(bits)] = bits
        model = _core.open_model_file(with_tensor(Tensor("odd.weight", dims, dtype, bytes(data))).write(path))
        model.check()
        with pytest.raises(_core.ModelError) as raised:
            model.check(values=True)
        assert raised.value.reason == "MODEL_NONFINITE"
        assert f"m.gguf: tensor odd.weight: element {element} is {kind}" in raised.value.message
