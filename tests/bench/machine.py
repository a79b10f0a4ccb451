"""The machine of a measurement."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Returns the processor's name from /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((text.partition(": ")[2] for text in lines if text.startswith("model name")), platform.machine())
