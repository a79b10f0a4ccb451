"""The extension as shipped: hardened, and linked only with libraries that machines without a GPU have."""

from __future__ import annotations

import platform
import struct
from pathlib import Path

import pytest

from imp_service import _core
from support.elf import (
    BIND_NOW,
    DT_FLAGS,
    DT_RPATH,
    DT_RUNPATH,
    DT_TEXTREL,
    EXECUTABLE,
    PT_GNU_RELRO,
    PT_GNU_STACK,
    SHADOW_STACK,
    X86_64,
    Elf,
)

ENDBR64 = bytes.fromhex("f30f1efa")
# Libraries of the C and C++ runtimes, which every Linux has.
RUNTIME = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="ELF is what Linux loads")


def weaknesses(elf: Elf) -> list[str]:
    """Returns the usual hardening measures that are missing."""
    symbols = elf.symbols()
    stacks = elf.of_kind(PT_GNU_STACK)
    start = elf.offset_of(symbols["PyInit__core"])
    holds = {
        "position-independent code": DT_TEXTREL not in elf.dynamic,
        "read-only relocations": len(elf.of_kind(PT_GNU_RELRO)) == 1,
        "bound at load": bool(elf.dynamic.get(DT_FLAGS, [0])[0] & BIND_NOW),
        "no executable stack": [stack.flags & EXECUTABLE for stack in stacks] == [0],
        "stack protector": "__stack_chk_fail" in symbols,
        "fortified calls": any(name.startswith("__") and name.endswith("_chk") for name in symbols),
        "indirect branch targets": elf.machine != X86_64 or elf.content[start : start + 4] == ENDBR64,
        "shadow stack": elf.machine != X86_64 or bool(elf.x86_features() & SHADOW_STACK),
        "no search path of its own": not {DT_RPATH, DT_RUNPATH} & elf.dynamic.keys(),
    }
    return [name for name, is_there in holds.items() if not is_there]


@pytest.fixture
def extension() -> bytes:
    return Path(str(_core.__file__)).read_bytes()


def test_b03_the_extension_is_hardened(extension: bytes):
    assert weaknesses(Elf(extension)) == []


def test_b03_what_is_missing_is_found(extension: bytes):
    elf, soft = Elf(extension), bytearray(extension)
    (header,) = struct.unpack_from("<Q", soft, 32)
    row = elf.segments.index(elf.of_kind(PT_GNU_STACK)[0])
    struct.pack_into("<I", soft, header + row * 56 + 4, 7)
    start = elf.offset_of(elf.symbols()["PyInit__core"])
    soft[start : start + 4] = b"\x90" * 4
    soft = bytearray(bytes(soft).replace(b"__stack_chk_fail\0", b"__stack_chk_fall\0"))
    expected = ["no executable stack", "stack protector"]
    if elf.machine == X86_64:
        expected += ["indirect branch targets", "shadow stack"]
        place = elf.place_of_x86_features()
        assert place > 0
        struct.pack_into("<I", soft, place, elf.x86_features() & ~SHADOW_STACK)
    assert weaknesses(Elf(bytes(soft))) == expected


def test_lif_11_it_needs_the_runtimes_alone(extension: bytes):
    assert Elf(extension).needed() <= RUNTIME
