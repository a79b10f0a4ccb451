"""CPU backends for tests: each instruction set of this machine, with one thread and with several."""

from __future__ import annotations

import pytest

from imp_service import _testing as core


def available_isas() -> list[str]:
    """The inner loops have four forms; the words between them choose matrix kernels only."""
    found = []
    for isa in ("generic", "avx2", "avx512", "avx512bf16"):
        try:
            core.Device(isa=isa)
        except Exception as error:
            assert "lacks" in str(error)
        else:
            found.append(isa)
    return found


ISAS = available_isas()
DEVICES = [core.Device(isa=isa, n_threads=n_threads) for isa in ISAS for n_threads in (1, 3)]
BEST = DEVICES[-1]

each_device = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name.split("(")[-1].rstrip(")"))
