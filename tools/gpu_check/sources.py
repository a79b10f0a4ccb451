"""Hashes all inputs of a GPU kernel's compilation: its sources without comments, the compiler and its flags."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
ROOM = Path("backend/cuda")  # below csrc/; its folders may move
# The last word of a matrix kernel's name (q8_0_imma) -> its source.
MATRIX_SOURCES = {
    "dp4a": "gemm/dp4a.cu",
    "imma": "gemm/imma.cu",
    "mma": "gemm/float_mma.cu",
    "hmma": "gemm/hmma.cu",
    "wgmma": "gemm/wgmma.cu",
    "cublaslt": "gemm/cublaslt/products.cu",
    "reference": "gemm/reference.cu",
}
WITHOUT_KERNELS = "device/runtime.cu"
# The source that prepares the rows that kernels read, and the kernels that read unprepared rows.
PREPARATION = "activation_rows"
READS_FLOATS = ("reference",)
# Sources whose launches depend on host code in other files.
HOST_SIDES = {
    "attention/decode.cu": ("attention/attention.cpp",),
    "attention/prefill.cu": ("attention/attention.cpp",),
    "sampling/kernels.cu": ("sampling/plan.cpp", "sampling/sampling.cpp"),
    "gemm/cublaslt/products.cu": ("gemm/cublaslt/cublaslt.cpp",),
}
# Folders whose name is part of the names of their kernels.
SUBJECTS = ("attention", "sampling")

_TOKEN = re.compile(
    r"""  //[^\n]* | /\*.*?\*/                          # comments
        | (?P<kept> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \w+ | [^\w\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def code_of(text: str) -> str:
    """Returns the tokens of a source, without comments and white space."""
    kept = (match["kept"] for match in _TOKEN.finditer(text))
    return " ".join(word for word in kept if word is not None)


def reached(csrc: Path, first: Sequence[Path]) -> list[Path]:
    """Returns these files and the project headers that they include, directly or not, all relative to csrc/."""
    found: set[Path] = set()
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path in found or not (csrc / path).is_file():
            continue
        found.add(path)
        waiting += [Path(name) for name in _INCLUDE.findall((csrc / path).read_text())]
    return sorted(found)


def fingerprint(csrc: Path, first: Sequence[Path], nvcc: str, flags: Sequence[str]) -> str:
    """Returns the hash of the sources, the compiler and the flags."""
    parts = {path.as_posix(): code_of((csrc / path).read_text()) for path in reached(csrc, first)}
    text = json.dumps({"sources": parts, "nvcc": nvcc, "flags": list(flags)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def files_of_room(csrc: Path, pattern: str) -> list[Path]:
    """Returns the matching files anywhere below ROOM, relative to csrc/."""
    found = (path.relative_to(csrc) for path in (csrc / ROOM).rglob(pattern))
    return sorted(found)


def file_of(csrc: Path, kernel: str) -> Path:
    """Returns the source of a matrix kernel."""
    source = MATRIX_SOURCES.get(kernel.rpartition("_")[2])
    if source is None:
        raise LookupError(f"{kernel} has no source: its last word is none of {', '.join(MATRIX_SOURCES)}")
    if not (csrc / ROOM / source).is_file():
        raise LookupError(f"{kernel} has no source: {source} is not in {ROOM}")
    return ROOM / source


def listed() -> list[str]:
    """Returns the matrix kernels of the installed imp; empty if there is none, or one without CUDA."""
    try:
        from imp_service import _core
    except ImportError:
        return []
    for kind in ("cuda", "cuda_emulated"):
        with contextlib.suppress(_core.DeviceError):
            return [row["name"] for row in _core.kernels(kind)]
    return []


def unknown(chosen: Sequence[str], matrix_kernels: Sequence[str]) -> str:
    """Returns the problem with a choice of kernels; empty if there is none."""
    known = {*matrix_kernels, *ops()}
    others = sorted(set(chosen) - known)
    return f"--only: {', '.join(others)}, expected some of {', '.join(sorted(known))}" if others else ""


def ops(csrc: Path = CSRC) -> dict[str, Path]:
    """Returns the sources of kernels outside the matrix list, by name."""
    others = {ROOM / source for source in (*MATRIX_SOURCES.values(), WITHOUT_KERNELS)}
    return {op_name(path): path for path in files_of_room(csrc, "*.cu") if path not in others}


def op_name(source: Path) -> str:
    subject = source.parent.name
    return f"{subject}_{source.stem}" if subject in SUBJECTS else source.stem


def sources_of(csrc: Path, name: str) -> list[Path]:
    """Returns the sources that are compiled for a kernel."""
    others = ops(csrc)
    source = others[name] if name in others else file_of(csrc, name)
    found = [source, source.with_suffix(".cpp")]
    found += [ROOM / host for host in HOST_SIDES.get(source.relative_to(ROOM).as_posix(), ())]
    if name not in others and name not in READS_FLOATS:
        found += only(csrc, f"{PREPARATION}.cu")
    return found


def only(csrc: Path, name: str) -> list[Path]:
    found = files_of_room(csrc, name)
    if len(found) != 1:
        raise LookupError(f"{name} is in {len(found)} folders of {ROOM}, expected one")
    return found


def hash_of(name: str, nvcc: str) -> str:
    """Returns the hash of a kernel as this version of nvcc would build it."""
    return fingerprint(CSRC, sources_of(CSRC, name), nvcc, build_flags())


def build_flags() -> list[str]:
    """Returns the flags that the build gives nvcc, without the architecture."""
    text = (CSRC / "CMakeLists.txt").read_text()
    found = re.findall(r"\$<\$<COMPILE_LANGUAGE:CUDA>:([^>]*)>", text)
    return ["-std=c++20", "-O3", "-DNDEBUG", *(flag for group in found for flag in group.split(";"))]


def nvcc_version() -> str:
    """Returns the version of the nvcc that builds imp, such as 13.0.88."""
    tool = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if tool is None:
        raise LookupError("no nvcc: neither on PATH nor named by CUDACXX")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bV(\d+\.\d+\.\d+)", said)
    if found is None:
        raise LookupError(f"{tool} does not say its version: {said!r}")
    return found[1]
