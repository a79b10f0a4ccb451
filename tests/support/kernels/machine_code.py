"""Compiles the CUDA sources and reads the registers, spills and instructions of every kernel; needs no GPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from gpu_check.sources import build_flags, files_of_room, fingerprint, nvcc_version
from support.kernels import products_under_way
from support.kernels.products_under_way import instructions, overwritten

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "csrc"
ROOM = CSRC / "backend" / "cuda"
# The cache of results, in a folder that git ignores.
REMEMBERED = ROOT / "build" / "machine-code"


class ToolMissing(Exception):
    """A tool is missing; the message names it."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One compiled kernel."""

    name: str  # the function's name, without namespaces and template arguments
    symbol: str
    registers: int
    stack_bytes: int
    spill_bytes: int
    instructions: Counter[str]  # with suffixes: "LDG.E.128" -> its count; empty if the code was not read
    overwrites: list[str]  # instructions that overwrite registers of products in flight

    def count(self, pattern: str) -> int:
        return sum(n for word, n in self.instructions.items() if re.fullmatch(pattern, word))

    def words(self, pattern: str) -> list[str]:
        return sorted(word for word in self.instructions if re.fullmatch(pattern, word))


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One source file for one architecture."""

    source: str
    cpu_seconds: float
    kernels: tuple[Kernel, ...]


def nvcc() -> str:
    found = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if not found:
        raise ToolMissing("no nvcc: neither on PATH nor named by CUDACXX")
    return found


def disassembler() -> str:
    """Returns the path of cuobjdump in a toolkit or NVIDIA's Python packages; finds nvdisasm there or on PATH."""
    package = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (package.submodule_search_locations or ())] if package is not None else []
    for folder in (folder for root in roots for folder in sorted(root.glob("cu*/bin"))):
        if (folder / "cuobjdump").exists() and (folder / "nvdisasm").exists():
            return str(folder / "cuobjdump")
    found = shutil.which("cuobjdump")
    if found and shutil.which("nvdisasm"):
        return found
    raise ToolMissing("no cuobjdump and nvdisasm: neither on PATH nor in NVIDIA's packages for Python")


def sources() -> list[Path]:
    return [CSRC / path for path in files_of_room(CSRC, "*.cu")]


def compile_once(source: Path, architecture: str, folder: Path) -> Compiled:
    """Returns what compile_source returns for a file of csrc/, from the cache if sources and tools have not changed."""
    remembered = REMEMBERED / f"{source.parent.name}.{source.stem}.{architecture}.json"
    key = _key(source, architecture)
    if remembered.exists():
        held = json.loads(remembered.read_text())
        if held["key"] == key:
            kernels = (
                Kernel(**{**kernel, "instructions": Counter(kernel["instructions"])}) for kernel in held["kernels"]
            )
            return Compiled(held["source"], held["cpu_seconds"], tuple(kernels))
    found = compile_source(source, architecture, folder)
    REMEMBERED.mkdir(parents=True, exist_ok=True)
    partial = remembered.with_name(f"{remembered.name}.{os.getpid()}")
    partial.write_text(json.dumps({"key": key, **vars(found), "kernels": [vars(kernel) for kernel in found.kernels]}))
    partial.replace(remembered)
    return found


def _key(source: Path, architecture: str) -> str:
    """Returns the cache key: the sources, the compiler, the flags and the code that reads the output."""
    try:
        reader = disassembler()
    except ToolMissing:
        reader = ""
    readers = [Path(__file__), Path(products_under_way.__file__)]
    flags = [*build_flags(), architecture, reader, *(path.read_text() for path in readers)]
    return fingerprint(CSRC, [source.relative_to(CSRC)], nvcc_version(), flags)


def compile_source(source: Path, architecture: str, folder: Path) -> Compiled:
    """Compiles for one architecture ("90a") and reads the result. Raises AssertionError with the output of nvcc."""
    cubin = folder / f"{source.parent.name}.{source.stem}.{architecture}.cubin"
    target = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [nvcc(), *build_flags(), "-gencode", target, "-Xptxas", "-v", "-I", str(CSRC), "-cubin"]
    process = subprocess.Popen(
        [*command, str(source), "-o", str(cubin)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None  # narrows
    log = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)  # usage of the compiler and of its children
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    assert process.returncode == 0, f"{source.name} for sm_{architecture}:\n{log}"
    return Compiled(source.name, usage.ru_utime + usage.ru_stime, read_kernels(log, disassemble(cubin)))


def disassemble(cubin: Path) -> str:
    """Returns the listing of cuobjdump; empty if there is no such tool."""
    try:
        tool = disassembler()
    except ToolMissing:
        return ""
    environment = {**os.environ, "PATH": f"{Path(tool).parent}:{os.environ.get('PATH', '')}"}
    found = subprocess.run([tool, "-sass", str(cubin)], env=environment, capture_output=True, text=True, check=True)
    return found.stdout


def read_kernels(ptxas_log: str, sass: str) -> tuple[Kernel, ...]:
    listings = read_listings(sass)
    kernels = []
    for part in ptxas_log.split("Compiling entry function '")[1:]:
        symbol = part[: part.index("'")]
        numbers = {word: int(number) for number, word in re.findall(r"(\d+) bytes (stack frame|spill \w+)", part)}
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None, part
        listing = listings.get(symbol, "")
        kernels.append(
            Kernel(function_name(symbol), symbol, int(registers[1]), numbers["stack frame"],
                   numbers["spill stores"] + numbers["spill loads"],
                   Counter(instruction.word for instruction in instructions(listing)), overwritten(listing))
        )  # fmt: skip
    return tuple(sorted(kernels, key=lambda kernel: kernel.symbol))


def read_listings(sass: str) -> dict[str, str]:
    """Returns the listing of each function."""
    parts = (part.partition("\n") for part in sass.split("Function : ")[1:])
    return {symbol.strip(): body for symbol, _, body in parts}


def function_name(symbol: str) -> str:
    """Returns the last name of a mangled function: `_ZN3imp4cuda11dp4a_kernelILi4EEEvPf` is dp4a_kernel."""
    at = re.match(r"_ZN?", symbol)
    if at is None:
        return symbol
    name, rest = symbol, symbol[at.end() :]
    while (length := re.match(r"\d+", rest)) is not None:
        rest = rest[length.end() :]
        name, rest = rest[: int(length[0])], rest[int(length[0]) :]
    return name
