"""Finds the files that changed since the last full run, so that the gate runs the parts that they touch."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Collection
from pathlib import Path

# `.ci/run full` writes such a file when it passes; whoever lands the commit adds it.
LAST_FULL = Path(".ci") / "last_full.toml"


def base_commit(root: Path) -> str:
    """Returns the commit to compare with: IMP_CI_BASE, or the commit of the last full run; empty if there is none."""
    if base := os.environ.get("IMP_CI_BASE"):
        return base
    record = root / LAST_FULL
    return str(tomllib.loads(record.read_text())["commit"]) if record.exists() else ""


def changed_files(root: Path, base: str) -> Collection[str] | None:
    """Returns the files that differ from the base, uncommitted ones too; None if the base is not in this clone."""
    if not base or _git(root, "cat-file", "-e", f"{base}^{{commit}}") is None:
        return None
    differing = _git(root, "diff", "--name-only", base)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    return None if differing is None or untracked is None else {*differing.split("\n"), *untracked.split("\n")} - {""}


def head(root: Path) -> str:
    """Returns the commit of the tree, or "unknown"."""
    return (_git(root, "rev-parse", "HEAD") or "unknown").strip()


def _git(root: Path, *words: str) -> str | None:
    ran = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else None
