"""Backends for tests: the CPU's by instruction set, with one thread and with several, and the GPU's by hardware."""

from __future__ import annotations

import os

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


# Whether the tests are run to check a GPU: what has no use for it is for other machines.
GPU_IS_REQUIRED = os.environ.get("IMP_REQUIRE_GPU") == "1"


def gpu_kinds() -> list[str]:
    """The emulated GPU, and the real one where there is one; where one is required that alone, or an error."""
    try:
        core.Device(kind="cuda")
    except Exception as error:
        if GPU_IS_REQUIRED:
            raise
        assert "device cuda: " in str(error)
        return ["cuda_emulated"]
    return ["cuda"] if GPU_IS_REQUIRED else ["cuda_emulated", "cuda"]


GPU_KINDS = gpu_kinds()
GPUS = [core.Device(kind=kind) for kind in GPU_KINDS]
# Of which every instruction costs a microsecond: what is tried on it is chosen.
EMULATED = [gpu for gpu, kind in zip(GPUS, GPU_KINDS, strict=True) if kind == "cuda_emulated"]
# Of what a real GPU cannot be asked: where one is to be checked, such a test shows nothing.
emulated_only = pytest.mark.skipif(GPU_IS_REQUIRED, reason="asks the emulator alone")
CPU_FAMILIES = [] if GPU_IS_REQUIRED else [DEVICES]
# Devices whose ops give equal bits: what one of a family gives, all must give.
FAMILIES = [*CPU_FAMILIES, *([gpu] for gpu in GPUS)]

each_family = pytest.mark.parametrize(
    "devices", FAMILIES, ids=lambda devices: "cpu" if devices is DEVICES else devices[0].name.replace(" ", "_")
)
each_device = pytest.mark.parametrize(
    "device",
    [device for family in FAMILIES for device in family],
    ids=lambda device: device.name.split("(")[-1].rstrip(")").replace(" ", "_"),
)
