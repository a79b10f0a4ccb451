"""The ledger: which kernels have run on the hardware that they are for, and how well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_check.sources import ROOT

LEDGER = ROOT / "tests" / "gpu" / "ledger.json"
FORMAT = 1
CLEAN = "clean"


@dataclass(frozen=True)
class Speed:
    """Of one shape and number of rows, beside the ceiling of the same run."""

    value: float
    unit: str  # "GB/s" or "TFLOP/s"
    of_ceiling: float


@dataclass(frozen=True)
class Entry:
    """One kernel that was right on a device."""

    hash: str
    nvcc: str
    device: str
    driver: str
    date: str
    worst_error: dict[str, float]  # by class of shapes; relative to what the tests allow
    speed: dict[str, Speed] = field(default_factory=dict)  # by shape and rows
    sanitizer: str = "not run"  # or CLEAN, or what was found


Ledger = dict[str, Entry]


def read(path: Path = LEDGER) -> Ledger:
    document = json.loads(path.read_text())
    if document.get("format") != FORMAT:
        raise ValueError(f"{path}: format {document.get('format')}, expected {FORMAT}")
    return {name: _entry(row) for name, row in document["kernels"].items()}


def _entry(row: Mapping[str, Any]) -> Entry:
    speed = {case: Speed(**value) for case, value in row["speed"].items()}
    return Entry(**{**row, "speed": speed})


def write(ledger: Ledger, path: Path) -> None:
    rows = {name: asdict(entry) for name, entry in sorted(ledger.items())}
    path.write_text(json.dumps({"format": FORMAT, "kernels": rows}, indent=1) + "\n")


@dataclass(frozen=True)
class Standing:
    """What a row of the kernel list claims, and what the ledger says of it."""

    kernel: str
    validated: bool
    proven: bool  # the ledger has it with the hash of today's sources
    word: str

    @property
    def claims_too_much(self) -> bool:
        return self.validated and not self.proven

    @property
    def may_be_promoted(self) -> bool:
        return self.proven and not self.validated


def standings(rows: Iterable[Mapping[str, Any]], ledger: Ledger, hash_of: Callable[[str, str], str]) -> list[Standing]:
    """In the list's order. `hash_of` gives today's hash of a kernel for a version of nvcc."""
    return [_standing(row["name"], bool(row["validated"]), ledger, hash_of) for row in rows]


def _standing(name: str, validated: bool, ledger: Ledger, hash_of: Callable[[str, str], str]) -> Standing:
    entry = ledger.get(name)
    if entry is None:
        return Standing(name, validated, False, "has not run on hardware")
    if hash_of(name, entry.nvcc) != entry.hash:
        return Standing(name, validated, False, f"has changed since {entry.date}")
    if entry.sanitizer not in (CLEAN, "not run"):
        return Standing(name, validated, False, f"the sanitizer found: {entry.sanitizer}")
    return Standing(name, validated, True, f"right on {entry.device}, {entry.date}")
