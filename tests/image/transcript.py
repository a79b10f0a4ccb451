"""Prints what a check does as it goes: its steps with their seconds, its commands with their output."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MOST_LINES = 12


class ImageError(Exception):
    """Why the image is not what it has to be."""


def say(text: str) -> None:
    """Prints a line."""
    print(f"  {text}", flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints a heading, and the seconds at the end."""
    began = time.monotonic()
    print(f"\n== {name}", flush=True)
    yield
    say(f"({time.monotonic() - began:.0f} s)")


def run(words: Sequence[str], *, shown: str | None = None, status: int = 0, seconds: float = 120.0) -> str:
    """Runs a program; returns what it prints to stdout. `shown` is how the transcript spells the command.

    Raises ImageError with the output if the exit status is not the expected one.
    """
    ran = subprocess.run(words, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
    if ran.returncode != status:
        raise ImageError(
            f"{shown or shlex.join(words)}: exit status {ran.returncode}, expected {status}\n"
            f"{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        )
    if shown is not None:
        say(f"$ {shown}")
        lines = ran.stdout.strip().splitlines()
        for line in lines[:MOST_LINES]:
            say(line)
        if len(lines) > MOST_LINES:
            say(f"… {len(lines) - MOST_LINES} more lines")
    return ran.stdout


def expect(found: object, expected: object, what: str) -> None:
    """Prints a fact, or raises ImageError."""
    if found != expected:
        raise ImageError(f"{what}: {found!r}, expected {expected!r}")
    is_number = isinstance(found, int) and not isinstance(found, bool)
    say(f"ok: {what}: {found}" if is_number else f"ok: {what}")
