"""A container of the image, started by runc as a cluster's runtime starts it, in a network of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from image.transcript import ImageError, run
from support.run.patience import HANGS_AFTER


@dataclass(frozen=True)
class Container:
    """A running container."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The process of the entry point, as this machine sees it."""
        return int(json.loads(run(_runc(self.folder, "state", self.name)))["pid"])

    def log(self) -> str:
        """Returns what it has printed."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def inside(self, *words: str, shown: str | None = None, status: int = 0) -> str:
        """Runs a program of the image in the container."""
        return run(_runc(self.folder, "exec", self.name, *words), shown=shown, status=status)

    def near(self, *words: str, shown: str | None = None, status: int = 0) -> str:
        """Runs a program of this machine in the network of the container."""
        return run(self.in_its_network(*words), shown=shown, status=status)

    def in_its_network(self, *words: str) -> list[str]:
        """Returns a command that runs in the network of the container."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *words]

    def imp(self, *words: str, shown: bool = False, status: int = 0) -> str:
        """Runs this machine's imp in the network of the container."""
        command = " ".join(f"'{word}'" if " " in word else word for word in words)
        return self.near(*IMP, *words, shown=f"imp {command}" if shown else None, status=status)

    def wait_until(self, is_true: Any, what: str) -> float:
        """Asks until the answer is true; returns the seconds. Each question starts a program, so this does not spin."""
        began = time.monotonic()
        while not is_true():
            if self.process.poll() is not None:
                raise ImageError(f"{what}: the container ended with {self.process.returncode}\n{self.log()[-4000:]}")
            if time.monotonic() - began > HANGS_AFTER:
                raise ImageError(f"{what}: not after {HANGS_AFTER} s\n{self.log()[-4000:]}")
        return time.monotonic() - began

    def is_serving(self, *words: str) -> bool:
        """Returns whether `imp call health` says that it serves."""
        command = self.in_its_network(*IMP, "call", "health", "--attempts", "1", *words)
        return subprocess.run(command, capture_output=True, timeout=HANGS_AFTER, check=False).returncode == 0

    def memory(self) -> Mapping[str, int]:
        """Returns the peak of its control group, its limit, and how often it was at the limit."""
        found = json.loads(run(_runc(self.folder, "events", "--stats", self.name)))["data"]["memory"]["usage"]
        return {"peak": found.get("max", found["usage"]), "limit": found["limit"], "refused": found.get("failcnt", 0)}

    def stop(self, seconds: float) -> tuple[int, float]:
        """Sends SIGTERM; returns the exit status and the time."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        return self.process.wait(seconds), time.monotonic() - began

    def signal(self, number: int) -> None:
        """Sends a signal to the entry point."""
        run(_runc(self.folder, "kill", self.name, str(int(number))))


IMP = (sys.executable, "-m", "imp_service")


def _runc(folder: Path, *words: str) -> list[str]:
    return ["runc", "--root", str(folder / "state"), *words]


def _make(folder: Path, config: Mapping[str, Any]) -> str:
    """Writes the bundle; returns the name of its container."""
    folder.mkdir()
    name = f"imp-{folder.name}-{os.getpid()}"
    grouped = {**config, "linux": {**config["linux"], "cgroupsPath": f"/{name}"}}
    (folder / "config.json").write_text(json.dumps(grouped))
    return name


@contextmanager
def started(folder: Path, config: Mapping[str, Any]) -> Iterator[Container]:
    """Starts a container in a new folder; kills and removes it at the end."""
    name = _make(folder, config)
    with (folder / "log.txt").open("wb") as log:
        words = _runc(folder, "run", "--bundle", str(folder), name)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    container = Container(name, folder, process)
    try:
        container.wait_until(lambda: _is_running(container), "it starts")
        yield container
    finally:
        subprocess.run(_runc(folder, "delete", "--force", name), capture_output=True, check=False)
        process.kill()
        process.wait()


def _is_running(container: Container) -> bool:
    words = _runc(container.folder, "state", container.name)
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    return ran.returncode == 0 and json.loads(ran.stdout)["status"] == "running"


def ran_to_its_end(folder: Path, config: Mapping[str, Any], arguments: Sequence[str]) -> tuple[int, str]:
    """Runs a container with another command; returns its exit status and what it prints."""
    name = _make(folder, {**config, "process": {**config["process"], "args": list(arguments)}})
    words = _runc(folder, "run", "--bundle", str(folder), name)
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=HANGS_AFTER, stdin=subprocess.DEVNULL, check=False
    )
    return ran.returncode, ran.stdout + ran.stderr
