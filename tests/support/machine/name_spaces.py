"""Runs processes in their own Linux namespaces, if the machine allows that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest


def name_space(*options: str) -> Sequence[str]:
    """Returns a command prefix that creates the namespaces; skips the test if this machine does not allow them."""
    words = ["unshare", *options]
    if os.geteuid() != 0:
        words[1:1] = ["--user", "--map-root-user"]
    tried = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no name spaces here: {tried.stderr.strip()}")
    return words
