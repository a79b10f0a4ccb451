"""The commit to release: a checkout without changes whose version has an entry in the changelog."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_ENTRY = re.compile(r"^## (\S+)$", re.MULTILINE)
MOST_SHOWN = 10


class ReleaseError(Exception):
    """A reason why the release is impossible."""


@dataclass(frozen=True)
class Checkout:
    """A commit that can be released."""

    root: Path
    commit: str
    version: str


def read_checkout(root: Path = ROOT) -> Checkout:
    """Returns the commit and the version, or raises ReleaseError."""
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(f"the checkout has changes, expected none: {', '.join(changed[:MOST_SHOWN])}")
    commit = git(root, "rev-parse", "HEAD")
    version = read_version(root)
    newest = next(iter(changelog(root)), None)
    if newest != version:
        raise ReleaseError(f"the newest entry of CHANGELOG.md is {newest}, expected one of {version}, the version")
    tag = f"v{version}"
    if git(root, "tag", "--list", tag) and git(root, "rev-parse", f"{tag}^{{commit}}") != commit:
        raise ReleaseError(f"{tag} is another commit: the version was released before, expected a higher one")
    others = [each for each in git(root, "tag", "--points-at", commit, "--list", "v*").splitlines() if each != tag]
    if others:
        raise ReleaseError(f"the commit has the tag {', '.join(others)}, expected {tag}, of its version")
    return Checkout(root, commit, version)


def read_version(root: Path = ROOT) -> str:
    """Returns the version, from the only place that states it."""
    (version,) = _VERSION.findall((root / "service" / "imp_service" / "__init__.py").read_text())
    return str(version)


def changelog(root: Path = ROOT) -> dict[str, str]:
    """Returns the versions of the changelog in order, each with its text."""
    path = root / "CHANGELOG.md"
    _, *parts = _ENTRY.split(path.read_text() if path.exists() else "")
    return {version: text.strip() for version, text in zip(parts[::2], parts[1::2], strict=True)}


def export(checkout: Checkout, folder: Path) -> None:
    """Writes the files of the commit into a new folder."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", checkout.commit], cwd=checkout.root, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def git(root: Path, *words: str) -> str:
    """Returns what git prints."""
    ran = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ReleaseError(f"git {' '.join(words)}: {ran.stderr.strip()}")
    return ran.stdout.strip()
