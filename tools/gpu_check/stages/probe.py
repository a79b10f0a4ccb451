"""Records the device, its driver, the versions of all tools and libraries, and the source revision."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from gpu_check.context import ROOT, Context, StageError
from gpu_check.ledger import EMULATED

PACKAGES = ("torch", "transformers", "numpy", "gguf", "hypothesis", "pytest", "grpcio", "llguidance", "tokenizers",
            "scikit-build-core", "pybind11", "llama-cpp-python", "triton")  # fmt: skip
FACTS = ("name", "driver_version", "compute_cap", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm",
         "power.limit", "temperature.gpu", "utilization.gpu")  # fmt: skip
NVIDIA_SMI = ("nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv,noheader,nounits")


def run(context: Context, seconds: float) -> None:
    context.record(
        "machine", cpus=os.cpu_count(), system=platform.platform(), python=platform.python_version(),
        commit=commit(), nvcc=first_line("nvcc", "--version", of=-2), cmake=first_line("cmake", "--version"),
    )  # fmt: skip
    context.record("packages", **{name: version_of(name) for name in PACKAGES})
    if context.is_dry:
        context.record("device", name=EMULATED, driver="none", compute_cap="none")
        return
    answer = first_line(*NVIDIA_SMI)
    try:
        facts = facts_of(answer)
    except StageError:
        if (facts := facts_of_torch()) is None:
            raise
        context.note(f"no answer of nvidia-smi: {answer}")
    context.record("device", **facts)


def facts_of_torch() -> dict[str, str] | None:
    """Returns fewer facts, from PyTorch; None if PyTorch sees no device either."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(0)
    return {"driver": "unknown", "name": found.name, "compute_cap": f"{found.major}.{found.minor}",
            "memory_total": str(found.total_memory >> 20)}  # fmt: skip


def facts_of(answer: str) -> dict[str, str]:
    """Returns the facts of the first device that nvidia-smi lists."""
    values = dict(zip(FACTS, answer.split(", "), strict=False))
    if len(values) < len(FACTS):
        raise StageError(f"nvidia-smi does not name a device: {answer}")
    driver = values.pop("driver_version")
    return {"driver": driver, **{name.replace(".", "_"): value for name, value in values.items()}}


def first_line(*command: str, of: int = 0) -> str:
    """Returns a line of a command's output, or why there is none."""
    if shutil.which(command[0]) is None:
        return f"no {command[0]}"
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (found.stdout or found.stderr).strip().splitlines()
    return lines[of] if len(lines) >= max(1, -of) else f"{command[0]} says nothing"


def commit() -> str:
    revision = ROOT / "service" / "imp_service" / "revision.txt"
    if shutil.which("git"):
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return revision.read_text().strip() if Path(revision).exists() else "unknown"


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
