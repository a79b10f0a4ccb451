"""The file that `imp tune` writes: the fastest kernels, and the CPU and list of kernels that this was measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from imp_service import _core
from imp_service.config import ConfigError, Settings
from imp_service.config.files import CandidateFile, read_first
from imp_service.core.isa import isa_of

VERSION = 1
# The number of rows of each measurement, and up to how many rows its result is used; None: any number.
BANDS: tuple[tuple[int, int | None], ...] = ((1, 4), (8, 64), (512, None))

# Weight type, kernel, up to how many rows.
Preference = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The machine on which a tuning was measured. It is valid only there."""

    cpu: str
    isa: str  # as isa_of() names it
    threads: int
    kernels: str  # digest of the kernel list

    def differences(self, other: TuningKey) -> list[str]:
        """Each field in which the other differs, as words."""
        pairs = [(field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return [f"{name} {mine}, here {its}" for name, mine, its in pairs if mine != its]


@dataclass(frozen=True, slots=True)
class Tuning:
    key: TuningKey
    preferences: tuple[Preference, ...]


def key_here(settings: Settings) -> TuningKey:
    """The key of this machine under these settings, whose `device.threads` is decided."""
    device = settings.device
    assert isinstance(device.threads, int)  # narrows
    return TuningKey(_core.processor_name(), isa_of(settings), device.threads, kernel_digest(_core.kernels()))


def kernel_digest(kernels: Sequence[Mapping[str, object]]) -> str:
    """A digest of the kernels' names, their order and their properties."""
    return hashlib.sha256(json.dumps([dict(row) for row in kernels], sort_keys=True).encode()).hexdigest()[:16]


def write_tuning(tuning: Tuning, measured: object) -> str:
    """The file's text. `measured` has the measurements, for people."""
    rows = [{"weight": weight, "kernel": kernel, "max_rows": rows} for weight, kernel, rows in tuning.preferences]
    document = {"version": VERSION, "key": asdict(tuning.key), "preferences": rows, "measured": measured}
    return json.dumps(document, indent=1) + "\n"


def read_tuning(path: Path) -> Tuning:
    """Raises ConfigError if `imp tune` has not written the file."""
    found = read_first((CandidateFile(path, "device.tuning"),))
    assert found is not None  # a missing file raises ConfigError
    where = f"device.tuning: {path}"
    try:
        document = json.loads(found[1])
    except (ValueError, RecursionError) as error:
        raise ConfigError(where, f"is not JSON: {error}") from None
    try:
        return _tuning(document)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(where, f"is not a tuning of this version of imp: {error}; imp tune writes one") from None


def tuning_here(settings: Settings) -> tuple[list[Preference], str]:
    """The preferences in the settings' tuning file, or none and why they are not valid here."""
    if settings.device.tuning is None:
        return [], ""
    path = Path(settings.device.tuning)
    tuning = read_tuning(path)
    differences = tuning.key.differences(key_here(settings))
    if differences:
        return [], f"{path}: not used, it was measured on another machine: {'; '.join(differences)}; run imp tune here"
    return list(tuning.preferences), ""


def _tuning(document: Any) -> Tuning:
    if not isinstance(document, dict) or set(document) != {"version", "key", "preferences", "measured"}:
        raise ValueError("expected version, key, preferences and measured")
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']}, expected {VERSION}")
    key = TuningKey(**document["key"])
    if not all(type(getattr(key, field.name)).__name__ == field.type for field in fields(key)):
        raise ValueError("key: a value of another type")
    return Tuning(key, tuple(_preference(row) for row in document["preferences"]))


def _preference(row: Any) -> Preference:
    weight, kernel, rows = row["weight"], row["kernel"], row["max_rows"]
    if not isinstance(weight, str) or not isinstance(kernel, str) or type(rows) not in (int, type(None)):
        raise ValueError("preferences: a value of another type")
    return weight, kernel, rows
