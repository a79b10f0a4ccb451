"""32-bit floats, which messages and model files hold, as the decimals that people wrote."""

from __future__ import annotations

import struct

_FLOAT = struct.Struct("f")
# This many digits identify any 32-bit float.
_DIGITS = 9


def shortest(value: float) -> float:
    """The shortest decimal of the nearest 32-bit float: 0.8 for 0.800000011920929. A value beyond them as it is."""
    try:
        held = _FLOAT.pack(value)
    except OverflowError:
        return value
    [nearest] = _FLOAT.unpack(held)
    decimals = (float(f"{nearest:.{n}g}") for n in range(1, _DIGITS + 1))
    return next((each for each in decimals if _is_held_by(each, held)), nearest)


def _is_held_by(decimal: float, held: bytes) -> bool:
    try:
        return _FLOAT.pack(decimal) == held
    except OverflowError:  # rounded up beyond the largest
        return False
