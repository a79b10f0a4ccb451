"""GGUF files with one fault in the header or in a key-value: each is refused with its reason and a message."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import (
    ARRAY,
    BOOL,
    F32,
    FORMATS,
    I32,
    STRING,
    U32,
    Gguf,
    Key,
    Tensor,
    array,
    small_model,
    string,
)
from support.files.refusals import address_space, assert_refused, refusal

MIB = 2**20


def with_key(key: Key) -> Gguf:
    """Returns a file that is valid except for `key`, which precedes other keys."""
    source = small_model()
    source.keys.insert(3, key)
    return source


def ends_in(key: Key) -> bytes:
    """Returns a file with only `key`, which has the beginning of a value, and 100 zero bytes after it."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key.encode() + bytes(100)


def test_m01_other_magics(tmp_path: Path) -> None:
    for magic in [b"GGML", b"FUGG", b"gguf", b"\0\0\0\0"]:
        path = small_model(magic=magic).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_FORMAT", "m.gguf: ", "expected")
        assert_refused(path, "MODEL_FORMAT", "looks like", "expected GGUF", opener=_core.open_model_file)


@pytest.mark.parametrize("opener", [core.open_gguf, _core.open_model_file])
def test_m01_short_files(tmp_path: Path, opener: object) -> None:
    path = tmp_path / "m.gguf"
    for n_bytes in [0, 1, 7]:
        path.write_bytes(small_model().encode()[:n_bytes])
        assert_refused(path, "MODEL_TRUNCATED", f"has {n_bytes} bytes", opener=opener)


def test_m02_other_versions(tmp_path: Path) -> None:
    for version in [0, 1, 4, 2**31]:
        path = small_model(version=version).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_VERSION", f"version: {version};", "reads 2 and 3")
    # The real layout of version 1: 32-bit counts and lengths.
    v1 = b"GGUF" + struct.pack("<III", 1, 0, 1) + struct.pack("<I", 3) + b"abc" + struct.pack("<II", U32, 5)
    (tmp_path / "m.gguf").write_bytes(v1)
    assert_refused(tmp_path / "m.gguf", "MODEL_VERSION", "version: 1;")


def test_m03_big_endian(tmp_path: Path) -> None:
    body = b"GGUF" + struct.pack(">IQQ", 3, 0, 1) + struct.pack(">Q", 1) + b"a" + struct.pack(">II", U32, 5)
    (tmp_path / "m.gguf").write_bytes(body)
    assert_refused(tmp_path / "m.gguf", "MODEL_VERSION", "3, big-endian", "little-endian")


def around_size_max(record_bytes: int) -> list[int]:
    wrap = (2**64 - 1) // record_bytes
    return [wrap - 1, wrap, wrap + 1]


@pytest.mark.parametrize("count", [65_537, 2**31, 2**32, 2**61, 2**63, 2**64 - 1, *around_size_max(33)])
def test_m04_tensor_count_above_the_limit(tmp_path: Path, count: int) -> None:
    path = small_model(n_tensors=count).write(tmp_path / "m.gguf")
    assert_refused(path, "MODEL_LIMIT", f"tensor count: {count}, limit 65536")


def test_m05_tensor_count_that_the_file_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(Gguf(keys=small_model().keys[:1], n_tensors=65_536).encode().ljust(1024, b"\1")[:1024])
    with address_space(3 * MIB):
        assert_refused(path, "MODEL_TRUNCATED", "file has 1024")


def test_m06_no_tensors(tmp_path: Path) -> None:
    path = small_model(tensors=[]).write(tmp_path / "m.gguf")
    assert_refused(path, "MODEL_TENSOR", "has 0 tensors", opener=_core.open_model_file)


@pytest.mark.parametrize("count", [4097, 2**31, 2**32, 2**64 - 1, *around_size_max(14)])
def test_m07_key_count_above_the_limit(tmp_path: Path, count: int) -> None:
    path = small_model(n_keys=count).write(tmp_path / "m.gguf")
    assert_refused(path, "MODEL_LIMIT", f"key count: {count}, limit 4096")


def test_m08_key_count_that_the_file_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(small_model(n_keys=4096).encode()[:1024])
    assert_refused(path, "MODEL_TRUNCATED", "file has 1024")
    for change in [-1, 1]:
        path = small_model(n_keys=len(small_model().keys) + change).write(path)
        assert refusal(path).reason.startswith("MODEL_")


def test_m09_key_lengths(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with_key(Key("", U32, 1)).write(path)
    assert_refused(path, "MODEL_STRING", "key number 3", "empty")
    for length in [65_536, 2**31, 2**63, 2**64 - 1]:
        with_key(Key("", raw_name=string("name", length))).write(path)
        assert_refused(path, "MODEL_LIMIT", f"name of {length} bytes, limit 65535")
    start = Gguf(keys=[]).header()[:16] + struct.pack("<Q", 1)
    for length in [101, 65_535]:
        path.write_bytes(start + struct.pack("<Q", length) + b"k" * 100)
        assert_refused(path, "MODEL_TRUNCATED", f"needs {length} bytes at byte 32, file has 132")


def test_m09_longest_key_is_read(tmp_path: Path) -> None:
    key = "k" * 65_535
    assert core.open_gguf(with_key(Key(key, U32, 7)).write(tmp_path / "m.gguf")).metadata[key] == 7


def test_m10_string_lengths(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for length in [2**24 + 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]:
        with_key(Key("s", raw=struct.pack("<I", STRING) + string("text", length))).write(path)
        assert_refused(path, "MODEL_LIMIT", f"key s: string of {length} bytes, limit 16777216")
    for length in [101, 2**24]:
        path.write_bytes(ends_in(Key("s", raw=struct.pack("<IQ", STRING, length))))
        with address_space(3 * MIB):
            assert_refused(path, "MODEL_TRUNCATED", f"key s: needs {length} bytes")


def test_m10_token_lengths(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for n_bytes in [4096, 4097]:
        tokens = array("tokenizer.ggml.tokens", STRING, ["a", "b" * n_bytes])
        source = small_model()
        source.keys[-1] = tokens
        source.write(path)
        if n_bytes == 4096:
            assert core.open_gguf(path).metadata["tokenizer.ggml.tokens"] == [b"a", b"b" * 4096]
        else:
            assert_refused(path, "MODEL_LIMIT", "tokenizer.ggml.tokens: string of 4097 bytes, limit 4096")


def test_m11_value_types(tmp_path: Path) -> None:
    for kind in [13, 255, 2**31, 2**32 - 1]:
        path = with_key(Key("odd", raw=struct.pack("<II", kind, 0))).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_TYPE", f"key odd: value type {kind}, known are 0 to 12")


@pytest.mark.parametrize("element", [*FORMATS, STRING])
def test_m12_array_counts_above_the_limit(tmp_path: Path, element: int) -> None:
    for count in [2**24 + 1, 2**31, 2**32, 2**61, 2**63, 2**64 - 1]:
        key = Key("a", ARRAY, [], element, count)
        path = with_key(key).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_LIMIT", f"key a: array of {count} elements, limit 16777216")


@pytest.mark.parametrize("element", [*FORMATS, STRING])
def test_m13_array_counts_that_the_file_cannot_hold(tmp_path: Path, element: int) -> None:
    path = tmp_path / "m.gguf"
    for count in [2**20, 2**24]:
        path.write_bytes(ends_in(Key("a", ARRAY, [], element, count)))
        with address_space(3 * MIB):
            assert_refused(path, "MODEL_TRUNCATED", "key a: needs", "file has")


def test_m14_element_types(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with_key(Key("a", raw=struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", U32, 0))).write(path)
    assert_refused(path, "MODEL_TYPE", "key a: array of arrays")
    for element in [13, 2**31]:
        with_key(Key("a", raw=struct.pack("<IIQ", ARRAY, element, 1) + bytes(8))).write(path)
        assert_refused(path, "MODEL_TYPE", f"array of value type {element}")


def test_m15_key_twice(tmp_path: Path) -> None:
    for value in [200, 201]:
        path = with_key(Key("k.u8", 0, value)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_DUPLICATE", "key k.u8: occurs twice")


def test_m16_key_names(tmp_path: Path) -> None:
    not_utf8 = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
    for name in [*not_utf8, b"a\0b", b"line\nbreak", b"\x7f", b"\x1b[", b"k.u8\0", b"k.u8\0x"]:
        path = with_key(Key(name, U32, 1)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_STRING", "key number 3", "expected UTF-8 without control characters")
    good = "schlüssel.鍵.🔑"
    assert core.open_gguf(with_key(Key(good, U32, 1)).write(tmp_path / "m.gguf")).metadata[good] == 1


def test_m17_alignment(tmp_path: Path) -> None:
    for alignment in [0, 1, 2, 3, 4, 13, 48, 2**17, 2**31, 2**32 - 1]:
        path = with_key(Key("general.alignment", U32, alignment)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_VALUE", f"general.alignment: {alignment}, expected a power of two from 8 to 65536")


def test_m17_booleans(tmp_path: Path) -> None:
    for value in [2, 255]:
        path = with_key(Key("flag", BOOL, value)).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_VALUE", f"key flag: boolean of value {value}, expected 0 or 1")
        path = with_key(array("flags", BOOL, [1, 0, value])).write(tmp_path / "m.gguf")
        assert_refused(path, "MODEL_VALUE", f"key flags: boolean of value {value}")


def test_m18_alignment_of_another_type(tmp_path: Path) -> None:
    keys = [
        (Key("general.alignment", I32, 32), "has type i32, expected u32"),
        (Key("general.alignment", F32, 32.0), "has type f32"),
        (Key("general.alignment", STRING, "32"), "has type string"),
        (array("general.alignment", U32, [32]), "has type array of u32"),
    ]
    for key, words in keys:
        assert_refused(with_key(key).write(tmp_path / "m.gguf"), "MODEL_TYPE", words)


def test_metadata_beyond_its_limit(tmp_path: Path) -> None:
    """The total size of metadata is limited even if each value is within its limit. The file is sparse."""
    path = tmp_path / "m.gguf"
    head = Gguf(keys=[]).header()[:8] + struct.pack("<QQ", 1, 20)
    with path.open("wb") as file:
        file.write(head)
        for i in range(17):
            file.write(string(f"key.{i:04}") + struct.pack("<IIQ", ARRAY, 10, 2**21))
            file.seek(2**24, 1)
        file.truncate(2**29)
    assert_refused(path, "MODEL_LIMIT", "metadata may reach to byte 268435456")


def test_control_the_valid_file_opens(tmp_path: Path) -> None:
    """Both entry points accept the file that the tests above break."""
    path = with_key(Key("one.more", U32, 1)).write(tmp_path / "m.gguf")
    assert core.open_gguf(path).metadata["one.more"] == 1
    assert len(_core.open_model_file(path).tensors) == 4
    assert Tensor("t", (2,)).payload() != Tensor("u", (2,)).payload()
