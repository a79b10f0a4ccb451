"""Processes in name spaces of their own, where the machine lets these be made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest


def name_space(*options: str) -> Sequence[str]:
    """Words that go before a command's own; skips where this machine lets no name spaces be made."""
    words = ["unshare", *options]
    if os.geteuid() != 0:
        words[1:1] = ["--user", "--map-root-user"]
    tried = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no name spaces here: {tried.stderr.strip()}")
    return words
