"""Devices for tests: the CPU with each instruction set, with one and several threads, and each available GPU."""

from __future__ import annotations

import os

import pytest

from imp_service import _testing as core

# The instruction sets of this CPU that have their own inner loops, the fastest last. Others differ in products only.
ISAS = core.cpu_ops_here()[::-1]
DEVICES = [core.Device(isa=isa, n_threads=n_threads) for isa in ISAS for n_threads in (1, 3)]
BEST = DEVICES[-1]

# Whether this run checks a real GPU. Tests that do not use one are left to other machines.
GPU_IS_REQUIRED = os.environ.get("IMP_REQUIRE_GPU") == "1"


def gpu_kinds() -> list[str]:
    """Returns the emulated GPU and, if present, the real one. If a GPU is required: only the real one, or an error."""
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
# Emulated GPUs take a microsecond for each instruction, so tests give them small cases.
EMULATED = [gpu for gpu, kind in zip(GPUS, GPU_KINDS, strict=True) if kind == "cuda_emulated"]
# For tests that only work on the emulated GPU; a run that checks a real GPU skips them.
emulated_only = pytest.mark.skipif(GPU_IS_REQUIRED, reason="asks the emulator alone")
CPU_FAMILIES = [] if GPU_IS_REQUIRED else [DEVICES]
# Families of devices: all devices of one family must give equal bits.
FAMILIES = [*CPU_FAMILIES, *([gpu] for gpu in GPUS)]

each_family = pytest.mark.parametrize(
    "devices", FAMILIES, ids=lambda devices: "cpu" if devices is DEVICES else devices[0].name.replace(" ", "_")
)
each_device = pytest.mark.parametrize(
    "device",
    [device for family in FAMILIES for device in family],
    ids=lambda device: device.name.split("(")[-1].rstrip(")").replace(" ", "_"),
)
