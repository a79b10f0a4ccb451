"""Assembles the package imp_client as in its wheel, from the sources and without a build."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROJECT = ROOT / "clients" / "python"


def settings() -> dict[str, Any]:
    """Returns the client's pyproject.toml."""
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def packed() -> dict[Path, str]:
    """Returns the sources that the wheel takes from other folders, with their places in the wheel."""
    found = settings()["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    return {(PROJECT / source).resolve(): place for source, place in found.items()}


def put_together(folder: Path) -> None:
    """Writes the package imp_client into a folder."""
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "imp_client", folder / "imp_client", ignore=without_caches)
    for source, place in packed().items():
        if source.is_dir():
            shutil.copytree(source, folder / place, ignore=without_caches)
        else:
            (folder / place).parent.mkdir(exist_ok=True)
            shutil.copy(source, folder / place)
