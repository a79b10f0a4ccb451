"""Finds instructions that write registers of a warpgroup product in flight: undefined behaviour, unseen by tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ +)?(\S+) ?(.*?) *;")
_SUMS, _LEFT = 64, 4  # numbers of registers: for the sums of a product of 128 columns, and for its left operand
_NO_RESULT = re.compile(r"(ST|BRA|BAR|BSYNC|BSSY|SYNCS|[IFHU]*SETP|RED|EXIT|WARP|DEPBAR|NOP|MEMBAR|ERRBAR|PLOP|LDGSTS)")


@dataclass(frozen=True)
class Instruction:
    address: int
    word: str
    operands: str

    def registers(self) -> range:
        """Returns the registers that the instruction writes."""
        found = re.match(r"(?:P\d, )?R(\d+)\b", self.operands)
        if found is None or _NO_RESULT.match(self.word):
            return range(0)
        wide = 4 if re.search(r"\.128|LDSM.*\.4", self.word) else 2 if re.search(r"\.64|WIDE", self.word) else 1
        return range(int(found[1]), int(found[1]) + wide)


def instructions(listing: str) -> list[Instruction]:
    return [Instruction(int(at, 16), word, rest) for at, word, rest in _INSTRUCTION.findall(listing)]


def in_order_of_running(code: list[Instruction]) -> Iterator[Instruction]:
    """Yields instructions from first to last; after a product, repeats the target of a backward jump."""
    for i, instruction in enumerate(code):
        yield instruction
        target = re.search(r"\b0x([0-9a-f]+)$", instruction.operands) if instruction.word.startswith("BRA") else None
        if target is None or int(target[1], 16) > instruction.address:
            continue
        body = [each for each in code[: i + 1] if each.address >= int(target[1], 16)]
        if any(each.word.startswith("HGMMA") for each in body):
            yield from body


def overwritten(listing: str) -> list[str]:
    """Returns the offending instructions of one kernel's listing by cuobjdump."""
    waiting: list[range] = []  # registers of products that are in no group yet
    groups: list[list[range]] = []
    found = []
    for instruction in in_order_of_running(instructions(listing)):
        if instruction.word.startswith("HGMMA"):
            sums, left = (int(number) for number in re.findall(r"\bR(\d+)\b", instruction.operands)[:2])
            waiting += [range(sums, sums + _SUMS), range(left, left + _LEFT)]
            if "gsb0" in instruction.operands:
                groups.append(waiting)
                waiting = []
        elif instruction.word.startswith("WARPGROUP.DEPBAR"):
            left_under_way = int(instruction.operands.rsplit("0x", 1)[1], 16)
            groups = groups[len(groups) - left_under_way :] if left_under_way else []
        else:
            held = [registers for group in [*groups, waiting] for registers in group]
            if any(register in registers for register in instruction.registers() for registers in held):
                found.append(f"{instruction.address:#x} {instruction.word} {instruction.operands}")
    return found
