"""The context of a stage: its options and paths, and the file of its findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_check.sources import ROOT

Row = dict[str, Any]
# The folder of build results, which git ignores and a second run reuses.
BUILD = ROOT / "build"
# Folders of programs outside PATH: Python's, and the usual one of the CUDA toolkit.
MORE_PROGRAMS = (Path(sys.executable).parent, Path("/usr/local/cuda/bin"))


class StageError(Exception):
    """The stage failed; the message is the reason."""


@dataclass(frozen=True)
class Context:
    """One run. Each stage is a separate process and writes its findings to a file of JSON lines."""

    out: Path
    is_dry: bool = False
    only: tuple[str, ...] = ()  # kernels; empty: all
    wheels: Path | None = None
    stage: str = ""

    @property
    def kind(self) -> str:
        """The kind of device, as imp names it."""
        return "cuda_emulated" if self.is_dry else "cuda"

    @property
    def measurements(self) -> Path:
        """The file with the findings of all stages, one JSON object a line."""
        return self.out / "measurements.jsonl"

    def record(self, what: str, **values: Any) -> None:
        """Writes a finding at once, because the stage may be killed."""
        row = {"stage": self.stage, "what": what, **values}
        with self.measurements.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{what}: " + ", ".join(f"{name} {shown(value)}" for name, value in values.items()), flush=True)

    def forget(self, stages: Collection[str]) -> None:
        """Removes earlier findings of these stages; with `build`, all earlier findings. Marks the rest as earlier."""
        is_kept = "build" not in stages
        kept = [{**row, "earlier": True} for row in self.rows() if is_kept and row["stage"] not in stages]
        self.measurements.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def note(self, text: str) -> None:
        """Adds a remark about this stage to the report."""
        self.record("note", text=text)

    def found(self, stage: str, what: str) -> list[Row]:
        return [row for row in self.rows() if row["stage"] == stage and row["what"] == what]

    def rows(self) -> Iterator[Row]:
        if not self.measurements.exists():
            return
        for line in self.measurements.read_text().splitlines():
            yield json.loads(line)

    def ceiling(self, name: str) -> float | None:
        """Returns a ceiling of this run, in bytes or operations per second."""
        rates = [row["rate"] for row in self.found("ceilings", "ceiling") if row["name"] == name]
        return rates[-1] if rates else None

    def fraction(self, rate: float, of: str) -> float | None:
        ceiling = self.ceiling(of)
        return rate / ceiling if ceiling else None

    def chosen(self, kernel: str) -> bool:
        return not self.only or kernel in self.only

    @property
    def python_path_file(self) -> Path:
        """The file in which `build` records the places of imp and its packages, for runs with another output folder."""
        return BUILD / "gpu_check_python_path.txt"

    def environment(self) -> dict[str, str]:
        """Returns the environment of processes that a stage starts: they import imp from where `build` put it."""
        built = [row["python_path"] for row in self.found("build", "built")]
        if not built and not self.is_dry and self.python_path_file.exists():
            built = [self.python_path_file.read_text()]
        places = built[-1].split(os.pathsep) if built else []
        places += [str(Path(place).resolve()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        programs = [os.environ.get("PATH", ""), *map(str, MORE_PROGRAMS)]
        distinct = dict.fromkeys(filter(None, places))
        return {**os.environ, "PYTHONPATH": os.pathsep.join(distinct), "PATH": os.pathsep.join(filter(None, programs))}


class Budget:
    """The seconds left for cases that the stage can omit."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def is_spent(self) -> bool:
        return time.monotonic() >= self._end


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)


def python() -> list[str]:
    return [sys.executable, "-P"]


def run_module(context: Context, command: list[str], seconds: float) -> tuple[int | None, str]:
    """Runs a command that imports this package and imp. Returns the status (None: timed out) and the output."""
    environment = context.environment()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tools"), environment["PYTHONPATH"]]))
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, timeout=max(1.0, seconds))  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = error.output or b""
        return None, said.decode(errors="replace") if isinstance(said, bytes) else said
    return done.returncode, done.stdout
