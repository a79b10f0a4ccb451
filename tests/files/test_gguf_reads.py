"""The reader returns the content of valid GGUF files, to the bit."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import STRING, TENSOR_TYPES, U32, Gguf, Key, Tensor, array, small_model
from support.run.release_run import IS_RELEASE


@pytest.mark.parametrize("version", [2, 3])
def test_mod_1_metadata_of_every_type(tmp_path: Path, version: int) -> None:
    model = _core.open_model_file(small_model(version=version).write(tmp_path / "m.gguf"))
    metadata = model.metadata
    assert list(metadata)[:3] == ["general.architecture", "k.u8", "k.i8"]
    scalars = {key: value for key, value in metadata.items() if isinstance(value, int | float | str)}
    assert scalars == {
        "general.architecture": "llama",
        "k.u8": 200,
        "k.i8": -100,
        "k.u16": 60_000,
        "k.i16": -30_000,
        "k.u32": 4_000_000_000,
        "k.i32": -2_000_000_000,
        "k.u64": 2**63 + 5,
        "k.i64": -(2**62),
        "k.f32": float(np.float32(1e-5)),
        "k.f64": 1e300,
        "k.bool": True,
        "k.string": "Grüße\n",
    }
    assert metadata["k.bool"] is True
    assert metadata["tokenizer.ggml.tokens"] == [b"<s>", b"", b"\xff\xfe", "é".encode(), b"\x00"]
    for key, dtype, values in [
        ("k.i32s", np.int32, [3, -1, 2**31 - 1]),
        ("k.u64s", np.uint64, [1, 2**64 - 1]),
        ("k.f32s", np.float32, [0.5, -2.25, 3.0]),
        ("k.bools", np.bool_, [True, False, True]),
        ("k.none", np.uint8, []),
    ]:
        assert metadata[key].dtype == dtype
        assert metadata[key].tolist() == values
    assert model.format == "gguf"
    assert model.path == str(tmp_path / "m.gguf")
    assert model.warnings == []


def test_mod_1_tensors_and_their_bytes(tmp_path: Path) -> None:
    source = small_model()
    model = core.open_gguf(source.write(tmp_path / "m.gguf"))
    data = (tmp_path / "m.gguf").read_bytes()
    assert [(t.name, t.dtype, t.shape) for t in model.tensors] == [
        ("token_embd.weight", "q8_0", (64, 5)),
        ("blk.0.attn_q.weight", "q4_k", (256, 3)),
        ("blk.0.attn_norm.weight", "f32", (7,)),
        ("blk.0.ffn_up.weight", "f16", (3, 5, 2)),
    ]
    for tensor, written in zip(model.tensors, source.tensors, strict=True):
        assert tensor.n_bytes == len(written.payload())
        assert data[tensor.file_offset : tensor.file_offset + tensor.n_bytes] == written.payload()
        assert core.read_tensor(model, tensor.name) == written.payload()
        assert core.read_tensor(model, tensor.name, 3, 10) == written.payload()[3:13]
        assert core.find_tensor(model, tensor.name)
        assert not core.find_tensor(model, tensor.name + "x")
    with pytest.raises(_core.Error) as raised:
        core.read_tensor(model, "blk.0.attn_norm.weight", 20, 9)
    assert raised.value.reason == "BUG"


def test_mod_1_real_file_of_every_type_as_the_gguf_package_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "every.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ü"])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.5, 2.0])
    rng = np.random.default_rng(11)
    written = {}
    for name, (_, block_elements, block_bytes) in TENSOR_TYPES.items():
        raw = rng.integers(0, 60, (3, 2, 2 * block_bytes), dtype=np.uint8)
        kind = gguf.GGMLQuantizationType[name.upper()]
        if name == "f32":
            writer.add_tensor(name, raw.view(np.float32))
        elif name == "f16":
            writer.add_tensor(name, raw.view(np.float16))
        else:
            writer.add_tensor(name, raw, raw_dtype=kind)
        written[name] = (raw, (2 * block_elements, 2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    model = _core.open_model_file(path)
    assert [t.name for t in model.tensors] == list(TENSOR_TYPES)
    for tensor in model.tensors:
        raw, shape = written[tensor.name]
        assert (tensor.dtype, tensor.shape) == (tensor.name, shape)
        assert core.read_tensor(model, tensor.name) == raw.tobytes()
    assert model.metadata["tokenizer.ggml.scores"].tolist() == [0.5, -1.5, 2.0]
    assert model.metadata["general.architecture"] == "llama"


def test_gemm_12_no_mapping_of_the_file_exists(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "never_mapped.gguf")
    model = core.open_gguf(path)
    core.read_tensor(model, "token_embd.weight")
    assert "never_mapped" not in Path("/proc/self/maps").read_text()
    # The control: a mapping of the file would show there.
    mapped = np.memmap(path, mode="r")
    assert "never_mapped" in Path("/proc/self/maps").read_text()
    assert mapped[0] == ord("G")


def test_alignment_of_the_file_is_used(tmp_path: Path) -> None:
    source = small_model(alignment=128)
    source.keys.insert(1, Key("general.alignment", U32, 128))
    model = core.open_gguf(source.write(tmp_path / "m.gguf"))
    assert all(tensor.file_offset % 128 == 0 for tensor in model.tensors)
    assert core.read_tensor(model, "blk.0.ffn_up.weight") == source.tensors[3].payload()


def test_unpadded_last_tensor_is_whole(tmp_path: Path) -> None:
    model = core.open_gguf(small_model(pad_last=False).write(tmp_path / "m.gguf"))
    assert model.tensors[3].file_offset + model.tensors[3].n_bytes == (tmp_path / "m.gguf").stat().st_size
    assert model.warnings == []


def test_m34_data_after_the_last_tensor_is_a_warning_with_the_count(tmp_path: Path) -> None:
    model = core.open_gguf(small_model(trailing=bytes(2**20)).write(tmp_path / "m.gguf"))
    assert model.warnings == ["m.gguf: 1048576 bytes after the last tensor are not read"]


def test_m55_metadata_at_the_limits(tmp_path: Path) -> None:
    """Reads 4,096 keys, 65,536 tensors and 4 Mi tokens in few reads. A release run checks the processor time."""
    n_tokens = 2**22
    tokens = np.zeros(n_tokens, [("length", "<u8"), ("text", "<u4")])  # each token: four bytes that count up
    tokens["length"], tokens["text"] = 4, np.arange(n_tokens)
    raw = struct.pack("<IIQ", 9, 8, n_tokens) + tokens.tobytes()
    keys = [Key(f"key.{i}", U32, i) for i in range(4095)] + [Key("tokenizer.ggml.tokens", raw=raw)]
    tensors = [Tensor(f"blk.{i}.weight", (4,), data=bytes(16)) for i in range(65_536)]
    path = Gguf(keys=keys, tensors=tensors).write(tmp_path / "limits.gguf")
    faults = core.FaultyReads("none", 0)
    began = time.process_time()
    model = core.open_gguf(path, faults)
    seconds = time.process_time() - began
    assert not IS_RELEASE or seconds <= 2.0
    header_bytes = path.stat().st_size - 32 * 65_536
    assert faults.n_reads <= header_bytes // (256 * 1024) + 2
    assert core.typed_value(model, "strings", "tokenizer.ggml.tokens") == n_tokens
    assert len(model.tensors) == 65_536
    assert core.typed_value(model, "i32", "key.4094") == 4094
    assert core.find_tensor(model, "blk.65535.weight")


def test_string_that_is_not_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    source = small_model()
    source.keys.append(Key("odd", STRING, b"a\xff\xed\xa0\x80"))
    value = core.open_gguf(source.write(tmp_path / "m.gguf")).metadata["odd"]
    assert value == b"a\xff\xed\xa0\x80"


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [
        ("u8", "k.u64s_scalar", 7),
        ("i32", "k.u8", 200),
        ("i64", "k.i8", -100),
        ("u64", "k.u64", 2**63 + 5),
        ("number", "k.f32", float(np.float32(1e-5))),
        ("boolean", "k.bool", True),
        ("i32s", "k.i32s", [3, -1, 2**31 - 1]),
        ("numbers", "k.f32s", [0.5, -2.25, 3.0]),
        ("i32?", "absent", None),
        ("number?", "absent", None),
    ],
)
def test_m21_integer_keys_take_any_integer_type_that_fits(
    tmp_path: Path, kind: str, key: str, expected: object
) -> None:
    source = small_model()
    source.keys.append(Key("k.u64s_scalar", 10, 7))
    model = core.open_gguf(source.write(tmp_path / "m.gguf"))
    assert core.typed_value(model, kind, key) == expected


@pytest.mark.parametrize(
    ("kind", "key", "reason", "words"),
    [
        ("i32", "absent", "MODEL_KEY", "m.gguf: key absent: missing"),
        ("i32", "k.f32", "MODEL_TYPE", "m.gguf: key k.f32: has type f32, expected an integer type"),
        ("i32", "k.bool", "MODEL_TYPE", "has type bool"),
        ("i32", "k.string", "MODEL_TYPE", "has type string"),
        ("i32", "k.i32s", "MODEL_TYPE", "has type array of i32"),
        ("i32", "k.u32", "MODEL_VALUE", "m.gguf: key k.u32: 4000000000, expected -2147483648 to 2147483647"),
        ("u8", "k.i8", "MODEL_VALUE", "-100, expected 0 to 255"),
        ("i64", "k.u64", "MODEL_VALUE", "9223372036854775813, expected"),
        ("number", "k.u32", "MODEL_TYPE", "has type u32, expected f32"),
        ("number", "k.f64", "MODEL_TYPE", "has type f64, expected f32"),
        ("number?", "k.f64", "MODEL_TYPE", "has type f64, expected f32"),
        ("boolean", "k.u8", "MODEL_TYPE", "has type u8, expected bool"),
        ("string", "k.u8", "MODEL_TYPE", "has type u8, expected string"),
        ("string", "tokenizer.ggml.tokens", "MODEL_TYPE", "has type array of string, expected string"),
        ("strings", "k.string", "MODEL_TYPE", "has type string, expected array of string"),
        ("strings", "k.i32s", "MODEL_TYPE", "has type array of i32"),
        ("i32s", "k.i32", "MODEL_TYPE", "has type i32, expected array of an integer type"),
        ("i32s", "k.f32s", "MODEL_TYPE", "has type array of f32"),
        ("i32s", "k.bools", "MODEL_TYPE", "has type array of bool"),
        ("i32s", "k.u64s", "MODEL_VALUE", "18446744073709551615, expected"),
        ("numbers", "k.i32s", "MODEL_TYPE", "has type array of i32, expected array of f32"),
    ],
)
def test_m20_m21_typed_getters_name_the_key(tmp_path: Path, kind: str, key: str, reason: str, words: str) -> None:
    model = core.open_gguf(small_model().write(tmp_path / "m.gguf"))
    with pytest.raises(_core.ModelError) as raised:
        core.typed_value(model, kind, key)
    assert raised.value.reason == reason
    assert words in raised.value.message


def test_names_and_arrays_of_strings_from_python(tmp_path: Path) -> None:
    source = Gguf(keys=[array("a", STRING, [])], tensors=[Tensor("t", (3,))])
    model = core.open_gguf(source.write(tmp_path / "m.gguf"))
    assert model.metadata["a"] == []
