"""Reads an ELF file: segments, dynamic section, names and addresses of dynamic symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO, PT_GNU_PROPERTY = 1, 2, 0x6474E551, 0x6474E552, 0x6474E553
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_RPATH, DT_TEXTREL, DT_RUNPATH, DT_FLAGS = 1, 5, 6, 10, 15, 22, 29, 30
EXECUTABLE = 1
BIND_NOW = 8
X86_64 = 62
SYMBOL_BYTES = 24
# The x86 feature property: the features that the whole file is compiled for, as bits.
X86_FEATURES = 0xC0000002
BRANCH_TARGETS, SHADOW_STACK = 1, 2


@dataclass(frozen=True)
class Segment:
    """One row of the program header; offsets and addresses in bytes."""

    kind: int
    flags: int
    offset: int
    address: int
    n_bytes: int


class Elf:
    """A 64-bit little-endian shared object."""

    def __init__(self, content: bytes) -> None:
        assert content[:6] == b"\x7fELF\x02\x01"
        self.content = content
        (self.machine,) = struct.unpack_from("<H", content, 18)
        (start,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        self.segments = []
        for row in range(count):
            kind, flags, offset, address, _, n_bytes = struct.unpack_from("<IIQQQQ", content, start + row * size)
            self.segments.append(Segment(kind, flags, offset, address, n_bytes))
        self.dynamic = self._dynamic()

    def of_kind(self, kind: int) -> list[Segment]:
        """Returns the segments of one kind."""
        return [segment for segment in self.segments if segment.kind == kind]

    def x86_features(self) -> int:
        """Returns the bits of the GNU property note; 0 without one."""
        place = self.place_of_x86_features()
        return int(struct.unpack_from("<I", self.content, place)[0]) if place else 0

    def place_of_x86_features(self) -> int:
        """Returns their file offset, or 0. A note header of 16 bytes comes first, then rows padded to 8 bytes."""
        for segment in self.of_kind(PT_GNU_PROPERTY):
            place, end = segment.offset + 16, segment.offset + segment.n_bytes
            while place < end:
                kind, n_bytes = struct.unpack_from("<II", self.content, place)
                if kind == X86_FEATURES:
                    return place + 8
                place += 8 + (n_bytes + 7) // 8 * 8
        return 0

    def needed(self) -> set[str]:
        """Returns the libraries that it is linked with."""
        return {self._name(offset) for offset in self.dynamic.get(DT_NEEDED, [])}

    def symbols(self) -> dict[str, int]:
        """Returns the dynamic symbols with their addresses; 0 for a symbol of another library."""
        # The end of the symbols is the start of the names: linkers put them in this order.
        start, end = self.dynamic[DT_SYMTAB][0], self.dynamic[DT_STRTAB][0]
        found = {}
        for address in range(start, end - SYMBOL_BYTES + 1, SYMBOL_BYTES):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", self.content, self.offset_of(address))
            found[self._name(name)] = value
        return found

    def offset_of(self, address: int) -> int:
        """Returns the file offset of the byte at an address."""
        segment = next(s for s in self.of_kind(PT_LOAD) if s.address <= address < s.address + s.n_bytes)
        return address - segment.address + segment.offset

    def _dynamic(self) -> dict[int, list[int]]:
        (segment,) = self.of_kind(PT_DYNAMIC)
        found: dict[int, list[int]] = {}
        for offset in range(segment.offset, segment.offset + segment.n_bytes, 16):
            tag, value = struct.unpack_from("<QQ", self.content, offset)
            found.setdefault(tag, []).append(value)
        return found

    def _name(self, offset: int) -> str:
        start = self.offset_of(self.dynamic[DT_STRTAB][0]) + offset
        return self.content[start : self.content.index(b"\0", start)].decode()
