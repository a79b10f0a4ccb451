"""Runs the script of a stage: its output goes to the screen and to a log, and a stage that hangs is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import BinaryIO

from ci.stages import Planned

# A stage that takes longer hangs.
MOST_SECONDS = 3 * 3600
GRACE_SECONDS = 10


class Interrupted(Exception):
    """A signal ends the run; its argument is the signal's name."""


@dataclass(frozen=True)
class Ended:
    """How a stage ended."""

    name: str
    # In seconds since 1970.
    began: float
    seconds: float
    status: int
    # The command of the script that failed, where bash could say it.
    command: str = ""
    # Why the stage was ended from outside.
    why: str = ""
    is_interrupted: bool = False

    @property
    def passed(self) -> bool:
        return self.status == 0 and not self.why

    def has_written(self, path: Path) -> bool:
        """Whether the file was last written while the stage ran."""
        return self.began <= path.stat().st_mtime <= self.began + self.seconds + 1


@dataclass(frozen=True)
class Workplace:
    """The folders of a run."""

    root: Path
    tier: str

    @property
    def folder(self) -> Path:
        return self.root / "build" / "ci"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def changed(self) -> Path:
        return self.folder / "changed.txt"

    @property
    def failed_command(self) -> Path:
        return self.folder / "failed_command.txt"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def environment(self, planned: Planned) -> dict[str, str]:
        """Returns the variables of a script, besides those of this process."""
        return {
            "IMP_CI_TIER": self.tier if planned.is_whole else "part",
            "IMP_CI_REPORTS": str(self.reports),
            "IMP_CI_FAILED_COMMAND": str(self.failed_command),
        }


def run_stage(place: Workplace, planned: Planned) -> Ended:
    """Runs a stage to its end. Raises Interrupted, after it has ended the stage, if a signal arrives."""
    place.failed_command.unlink(missing_ok=True)
    began = time.time()
    head = f"\n== {planned.stage.name}{'' if planned.is_whole else f' ({planned.stage.part})'}: {planned.stage.does}\n"
    with place.log.open("ab") as log:
        _show(f"{head}{time.strftime('%H:%M:%S')}\n".encode(), log)
        process = subprocess.Popen(
            ["bash", str(place.root / ".ci" / "stages" / f"{planned.stage.name}.sh")],
            cwd=place.root,
            env={**os.environ, **place.environment(planned)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late: list[str] = []
        timer = Timer(MOST_SECONDS, lambda: (late.append("hangs"), _end(process)))
        timer.start()
        try:
            assert process.stdout is not None  # narrows
            while piece := process.stdout.read1():
                _show(piece, log)
            status = process.wait()
        except Interrupted:
            _end(process)
            raise
        finally:
            timer.cancel()
    command = place.failed_command.read_text().strip() if place.failed_command.exists() else ""
    why = f"ended after {MOST_SECONDS} s" if late else ""
    return Ended(planned.stage.name, began, time.time() - began, status, command, why)


def _show(piece: bytes, log: BinaryIO) -> None:
    log.write(piece)
    log.flush()
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends all processes of a stage."""
    for which in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, which)
            process.wait(GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def describe(status: int) -> str:
    """Returns an exit status in words: bash says 128 + N for a command that signal N killed."""
    number = -status if status < 0 else status - 128
    if status < 0 or status > 128:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit status {status}"
