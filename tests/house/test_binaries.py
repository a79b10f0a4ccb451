"""The extension as shipped: hardened, and linked only with libraries that machines without a GPU have."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_DT_FLAGS

from imp_service import _core

ENDBR64 = bytes.fromhex("f30f1efa")
# The GNU property of the x86 features that the whole file is compiled for, and the bit of shadow stacks there.
X86_FEATURES, SHADOW_STACK = 0xC0000002, 2
# Libraries of the C and C++ runtimes, which every Linux has.
RUNTIME = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}


def symbols_of(elf: ELFFile) -> dict[str, int]:
    """Returns the dynamic symbols with their addresses."""
    (dynamic,) = elf.iter_segments("PT_DYNAMIC")
    return {symbol.name: symbol.entry.st_value for symbol in dynamic.iter_symbols()}


def start_of_module(elf: ELFFile) -> int:
    """Returns the file offset of the function that Python calls first."""
    (start,) = elf.address_offsets(symbols_of(elf)["PyInit__core"])
    return int(start)


def x86_features(elf: ELFFile) -> int:
    """Returns the bits of X86_FEATURES; 0 without them."""
    notes = [note for segment in elf.iter_segments("PT_NOTE") for note in segment.iter_notes()]
    rows = [row for note in notes if note.n_type == "NT_GNU_PROPERTY_TYPE_0" for row in note.n_desc]
    return next((row.pr_data for row in rows if row.pr_type == "GNU_PROPERTY_X86_FEATURE_1_AND"), 0)


def weaknesses(content: bytes) -> list[str]:
    """Returns the usual hardening measures that are missing."""
    elf = ELFFile(BytesIO(content))
    (dynamic,) = elf.iter_segments("PT_DYNAMIC")
    tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
    symbols, start = symbols_of(elf), start_of_module(elf)
    is_x86 = elf["e_machine"] == "EM_X86_64"
    holds = {
        "position-independent code": "DT_TEXTREL" not in tags,
        "read-only relocations": any(elf.iter_segments("PT_GNU_RELRO")),
        "bound at load": bool(tags.get("DT_FLAGS", 0) & ENUM_DT_FLAGS["DF_BIND_NOW"]),
        "no executable stack": [s["p_flags"] & P_FLAGS.PF_X for s in elf.iter_segments("PT_GNU_STACK")] == [0],
        "stack protector": "__stack_chk_fail" in symbols,
        "fortified calls": any(name.startswith("__") and name.endswith("_chk") for name in symbols),
        "indirect branch targets": not is_x86 or content[start : start + 4] == ENDBR64,
        "shadow stack": not is_x86 or bool(x86_features(elf) & SHADOW_STACK),
        "no search path of its own": not {"DT_RPATH", "DT_RUNPATH"} & tags.keys(),
    }
    return [name for name, is_there in holds.items() if not is_there]


@pytest.fixture
def extension() -> bytes:
    return Path(str(_core.__file__)).read_bytes()


def test_b03_the_extension_is_hardened(extension: bytes):
    assert weaknesses(extension) == []


def test_b03_what_is_missing_is_found(extension: bytes):
    elf, soft = ELFFile(BytesIO(extension)), bytearray(extension)
    row = [segment["p_type"] for segment in elf.iter_segments()].index("PT_GNU_STACK")
    struct.pack_into("<I", soft, elf["e_phoff"] + row * elf["e_phentsize"] + 4, 7)
    start = start_of_module(elf)
    soft[start : start + 4] = b"\x90" * 4
    soft = soft.replace(b"__stack_chk_fail\0", b"__stack_chk_fall\0")
    expected = ["no executable stack", "stack protector"]
    if elf["e_machine"] == "EM_X86_64":
        expected += ["indirect branch targets", "shadow stack"]
        features = x86_features(elf)
        there, gone = (struct.pack("<III", X86_FEATURES, 4, bits) for bits in (features, features & ~SHADOW_STACK))
        soft = soft.replace(there, gone, 1)
    assert weaknesses(bytes(soft)) == expected


def test_lif_11_it_needs_the_runtimes_alone(extension: bytes):
    (dynamic,) = ELFFile(BytesIO(extension)).iter_segments("PT_DYNAMIC")
    assert {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")} <= RUNTIME
