"""The ledger: which kernels have run on their target hardware, and with what results.

It contains the kernels of the matrix list, which state whether they are validated, and the other kernels, which every
model needs: attention, norms, the sampler and so on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_check.sources import ROOT

LEDGER = ROOT / "tests" / "gpu" / "ledger.json"
FORMAT = 2
CLEAN = "clean"
NOT_RUN = "not run"
EMULATED = "emulated GPU"


@dataclass(frozen=True)
class Speed:
    """The speed at one shape and number of rows, with the ceiling of the same run."""

    value: float
    unit: str  # "GB/s" or "TFLOP/s"
    of_ceiling: float


@dataclass(frozen=True)
class Entry:
    """One kernel of the list, or one source of other kernels, that gave correct results on a device."""

    hash: str
    nvcc: str
    device: str
    compute_capability: str  # "9.0"
    driver: str
    date: str
    worst_error: dict[str, float]  # by case, as a fraction of the tests' bound
    speed: dict[str, Speed] = field(default_factory=dict)  # by shape and rows
    sanitizer: str = NOT_RUN  # or CLEAN, or the problem found

    @property
    def is_of_hardware(self) -> bool:
        """Whether the run was on hardware: not a dry run, and with known versions of nvcc and the device."""
        numbers = (self.nvcc, self.compute_capability)
        return self.device != EMULATED and all(re.match(r"\d+\.\d+", number) for number in numbers)


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
    """The claim of a kernel and its state in the ledger."""

    kernel: str
    validated: bool
    proven: bool  # the ledger has it and all that it needs, with the hashes of the current sources
    word: str

    @property
    def claims_too_much(self) -> bool:
        return self.validated and not self.proven

    @property
    def may_be_promoted(self) -> bool:
        return self.proven and not self.validated


HashOf = Callable[[str, str], str]


def standings(rows: Iterable[Mapping[str, Any]], ops: Iterable[str], ledger: Ledger, hash_of: HashOf) -> list[Standing]:
    """Returns the state of each row of the list. `ops` are the other kernels: unless all of them are proven, no row is.

    `hash_of` returns the current hash of a kernel for a version of nvcc.
    """
    missing = [name for name in ops if not proof(name, ledger, hash_of)[0]]
    found = []
    for row in rows:
        proven, word = proof(row["name"], ledger, hash_of)
        if proven and missing:
            proven, word = False, f"{word}, but these are not: {', '.join(missing)}"
        found.append(Standing(row["name"], bool(row["validated"]), proven, word))
    return found


def proof(name: str, ledger: Ledger, hash_of: HashOf) -> tuple[bool, str]:
    """Returns whether the ledger proves this kernel, apart from the kernels that it needs, and its entry as text."""
    entry = ledger.get(name)
    if entry is None:
        return False, "has not run on hardware"
    if not entry.is_of_hardware:
        return False, f"has not run on hardware: its entry is of {entry.device}, nvcc {entry.nvcc}"
    if hash_of(name, entry.nvcc) != entry.hash:
        return False, f"has changed since {entry.date}"
    where = f"{entry.device}, {entry.date}"
    if entry.sanitizer == NOT_RUN:
        return False, f"right on {where}, and no sanitizer has looked at it"
    if entry.sanitizer != CLEAN:
        return False, f"the sanitizer found: {entry.sanitizer}"
    return True, f"right on {where}"
