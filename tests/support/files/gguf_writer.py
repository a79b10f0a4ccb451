"""Writes GGUF files field by field, so that a test can make any of them wrong; independent of imp and of `gguf`."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

# Tensor types: number in the file, elements and bytes of a block. Taken from the format's published tables.
TENSOR_TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110),
    "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "iq4_nl": (20, 32, 18),
    "iq4_xs": (23, 256, 136),
    "bf16": (30, 1, 2),
    "mxfp4": (39, 32, 17),
    "tq1_0": (34, 256, 54),
    "tq2_0": (35, 256, 66),
    "iq1_s": (19, 256, 50),
    "iq1_m": (29, 256, 56),
    "iq2_xxs": (16, 256, 66),
    "iq2_xs": (17, 256, 74),
    "iq2_s": (22, 256, 82),
    "iq3_xxs": (18, 256, 98),
    "iq3_s": (21, 256, 110),
}


def string(text: str | bytes, length: int | None = None) -> bytes:
    """Returns a string as GGUF encodes it; `length` replaces the true length."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data) if length is None else length) + data


def scalar(kind: int, value: Any) -> bytes:
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


@dataclasses.dataclass
class Key:
    """One key-value. `raw` replaces everything after the key's name, `raw_name` the name with its length."""

    name: str | bytes
    kind: int = U32
    value: Any = 0
    element: int | None = None
    count: int | None = None
    raw: bytes | None = None
    raw_name: bytes | None = None

    def encode(self) -> bytes:
        name = string(self.name) if self.raw_name is None else self.raw_name
        if self.raw is not None:
            return name + self.raw
        if self.kind != ARRAY:
            return name + struct.pack("<I", self.kind) + scalar(self.kind, self.value)
        assert self.element is not None
        count = len(self.value) if self.count is None else self.count
        items = b"".join(scalar(self.element, item) for item in self.value)
        return name + struct.pack("<IIQ", ARRAY, self.element, count) + items


def array(name: str, element: int, values: Sequence[Any]) -> Key:
    return Key(name, ARRAY, list(values), element)


@dataclasses.dataclass
class Tensor:
    """One tensor. What is None follows from the rest as the format prescribes."""

    name: str | bytes
    dims: Sequence[int]
    dtype: str = "f32"
    data: bytes | None = None
    type_id: int | None = None
    n_dims: int | None = None
    offset: int | None = None
    raw_name: bytes | None = None

    def payload(self) -> bytes:
        if self.data is not None:
            return self.data
        _, block_elements, block_bytes = TENSOR_TYPES[self.dtype]
        n_elements = 1
        for dim in self.dims:
            n_elements *= dim
        # Positive small f32 and f16 numbers in every type, different from tensor to tensor.
        seed = sum(string(self.name))
        return bytes((seed + 31 * i) % 60 for i in range(n_elements // block_elements * block_bytes))

    def encode(self, offset: int) -> bytes:
        name = string(self.name) if self.raw_name is None else self.raw_name
        type_id = TENSOR_TYPES[self.dtype][0] if self.type_id is None else self.type_id
        n_dims = len(self.dims) if self.n_dims is None else self.n_dims
        dims = b"".join(struct.pack("<Q", dim) for dim in self.dims)
        place = offset if self.offset is None else self.offset
        return name + struct.pack("<I", n_dims) + dims + struct.pack("<IQ", type_id, place)


@dataclasses.dataclass
class Gguf:
    """A whole file. Counts and padding can be made to lie."""

    keys: list[Key] = dataclasses.field(default_factory=list)
    tensors: list[Tensor] = dataclasses.field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None
    n_keys: int | None = None
    alignment: int = 32
    trailing: bytes = b""
    pad_last: bool = True

    def header(self) -> bytes:
        """Returns everything before the data, padding included."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        out = bytearray(self.magic + struct.pack("<IQQ", self.version, n_tensors, n_keys))
        out += b"".join(key.encode() for key in self.keys)
        offset = 0
        for tensor in self.tensors:
            out += tensor.encode(offset)
            offset += self.padded(len(tensor.payload()))
        return bytes(out) + bytes(self.padded(len(out)) - len(out))

    def padded(self, n_bytes: int) -> int:
        return -(-n_bytes // self.alignment) * self.alignment

    def encode(self) -> bytes:
        out = bytearray(self.header())
        for i, tensor in enumerate(self.tensors):
            data = tensor.payload()
            last = i == len(self.tensors) - 1
            out += data + bytes(0 if last and not self.pad_last else self.padded(len(data)) - len(data))
        return bytes(out) + self.trailing

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encode())
        return path


def small_model(**changes: Any) -> Gguf:
    """Returns a valid file with one key of every type and tensors of several; `changes` replace fields of Gguf."""
    keys = [
        Key("general.architecture", STRING, "llama"),
        Key("k.u8", U8, 200),
        Key("k.i8", I8, -100),
        Key("k.u16", U16, 60_000),
        Key("k.i16", I16, -30_000),
        Key("k.u32", U32, 4_000_000_000),
        Key("k.i32", I32, -2_000_000_000),
        Key("k.u64", U64, 2**63 + 5),
        Key("k.i64", I64, -(2**62)),
        Key("k.f32", F32, 1e-5),
        Key("k.f64", F64, 1e300),
        Key("k.bool", BOOL, 1),
        Key("k.string", STRING, "Grüße\n"),
        array("k.i32s", I32, [3, -1, 2**31 - 1]),
        array("k.u64s", U64, [1, 2**64 - 1]),
        array("k.f32s", F32, [0.5, -2.25, 3.0]),
        array("k.bools", BOOL, [1, 0, 1]),
        array("k.none", U8, []),
        array("tokenizer.ggml.tokens", STRING, ["<s>", "", b"\xff\xfe", "é", b"\x00"]),
    ]
    tensors = [
        Tensor("token_embd.weight", (64, 5), "q8_0"),
        Tensor("blk.0.attn_q.weight", (256, 3), "q4_k"),
        Tensor("blk.0.attn_norm.weight", (7,), "f32"),
        Tensor("blk.0.ffn_up.weight", (3, 5, 2), "f16"),
    ]
    return dataclasses.replace(Gguf(keys=keys, tensors=tensors), **changes)
