"""What a kernel of the GPU is made from, as one hash: its sources without their comments, the compiler, its flags."""

from __future__ import annotations

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
KERNELS = Path("backend/cuda/gemm")  # below csrc/
EMULATOR = Path("backend/cuda/emu")  # which nvcc never sees

_TOKEN = re.compile(
    r"""  //[^\n]* | /\*.*?\*/                          # comments
        | (?P<kept> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \w+ | [^\w\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def code_of(text: str) -> str:
    """Its words and signs: neither comments nor white space."""
    kept = (match["kept"] for match in _TOKEN.finditer(text))
    return " ".join(word for word in kept if word is not None)


def reached(csrc: Path, first: Sequence[Path]) -> list[Path]:
    """These files and the project's headers that they reach, all relative to csrc/."""
    found: set[Path] = set()
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path in found or EMULATOR in path.parents or not (csrc / path).is_file():
            continue
        found.add(path)
        waiting += [Path(name) for name in _INCLUDE.findall((csrc / path).read_text())]
    return sorted(found)


def fingerprint(csrc: Path, first: Sequence[Path], nvcc: str, flags: Sequence[str]) -> str:
    """Of what is compiled, with what, and how."""
    parts = {path.as_posix(): code_of((csrc / path).read_text()) for path in reached(csrc, first)}
    text = json.dumps({"sources": parts, "nvcc": nvcc, "flags": list(flags)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(csrc: Path, kernel: str) -> Path:
    """The source that defines launch_KERNEL."""
    definition = re.compile(rf"\blaunch_{re.escape(kernel)}\s*\(\s*const\s+GemmLaunch\s*&\s*\w*\s*\)\s*\{{")
    sources = sorted((csrc / KERNELS).glob("*.cu"))
    found = [path for path in sources if definition.search(path.read_text())]
    if len(found) != 1:
        raise LookupError(f"launch_{kernel} is defined in {len(found)} files of {KERNELS}, expected one")
    return found[0].relative_to(csrc)


def hash_of(kernel: str, nvcc: str) -> str:
    """Of a kernel of the list, had it been built by this version of nvcc."""
    source = file_of(CSRC, kernel)
    return fingerprint(CSRC, [source, source.with_suffix(".cpp")], nvcc, build_flags())


def build_flags() -> list[str]:
    """What the build gives nvcc beside the architecture."""
    text = (CSRC / "CMakeLists.txt").read_text()
    found = re.findall(r"\$<\$<COMPILE_LANGUAGE:CUDA>:([^>]*)>", text)
    return ["-std=c++20", "-O3", "-DNDEBUG", *(flag for group in found for flag in group.split(";"))]


def nvcc_version() -> str:
    """ "13.0.88" of the nvcc that builds imp."""
    tool = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if tool is None:
        raise LookupError("no nvcc: neither on PATH nor named by CUDACXX")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bV(\d+\.\d+\.\d+)", said)
    if found is None:
        raise LookupError(f"{tool} does not say its version: {said!r}")
    return found[1]
