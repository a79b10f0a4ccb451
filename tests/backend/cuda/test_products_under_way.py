"""The reader of machine code finds registers that are written while warpgroup products use them."""

from __future__ import annotations

import pytest

from support.products_under_way import overwritten

# Two groups of one product each; the second is in flight when the loop starts again.
LOOP = [
    "LDG.E.128.CONSTANT R152, desc[UR4][R2.64] ;",
    "HGMMA.64x128x16.F32 R24, R168, gdesc[UR12], R24, gsb0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;",
    "HGMMA.64x128x16.F32 R88, R160, gdesc[UR16], R88, gsb0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;",
    "@P0 BRA 0x0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x0 ;",
    "FMUL R24, R24, R3 ;",
]


def listing(lines: list[str]) -> str:
    return "\n".join(f"        /*{16 * i:04x}*/      {line}   /* 0x0000000000000000 */" for i, line in enumerate(lines))


def test_what_is_waited_for_may_be_written() -> None:
    assert overwritten(listing(LOOP)) == []


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (
            0,
            "LDG.E.128.CONSTANT R160, desc[UR4][R2.64] ;",
        ),  # the left operand of the second product of the previous iteration
        (0, "LDG.E.128.CONSTANT R157, desc[UR4][R2.64] ;"),  # its last register overlaps the operand
        (0, "@!P1 MOV R163, R1 ;"),
        (0, "FADD R151, R1, R2 ;"),  # the last register of its sums
        (2, "WARPGROUP.DEPBAR.LE gsb0, 0x2 ;"),  # waits for too little, and the next line overwrites an operand
        (6, "NOP ;"),  # nobody waits for the last product
    ],
)
def test_what_is_under_way_may_not(at: int, line: str) -> None:
    lines = [*LOOP[:at], line, *LOOP[at + 1 :]]
    if at == 2:
        lines.insert(3, "FMUL R168, R1, R2 ;")
    if at == 6:
        lines[7] = "FMUL R88, R88, R3 ;"
    assert len(overwritten(listing(lines))) >= 1


def test_stores_and_comparisons_write_none() -> None:
    for line in ("STG.E.128 desc[UR4][R160.64], R160 ;", "ISETP.GT.AND P0, PT, R160, RZ, PT ;"):
        assert overwritten(listing([line, *LOOP[1:]])) == []
