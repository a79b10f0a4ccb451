"""One version: `imp_service.__version__` states it, and all else that names a version of imp agrees with it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from imp_service import __version__
from imp_service.api.revision import API_REVISION
from imp_service.cli.version import DISTRIBUTIONS, installed_distributions
from imp_service.core.installation import backends, revision
from support.command_line import clean_environment

ROOT = Path(__file__).resolve().parents[2]
# Versions of imp as documents and manifests spell them: a tag of an image.
IMAGE_TAG = re.compile(r"registry\.example/(?:\w+/)?imp:([\w.]+)|newName: registry\.example\S+, newTag: \"([\w.]+)\"")
ENTRY = re.compile(r"^## (\S+)$", re.MULTILINE)


def pages() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "conf").rglob("*.yaml")]


def entries(changelog: str) -> dict[str, str]:
    """The versions of a changelog, in its order, each with its text."""
    _, *parts = ENTRY.split(changelog)
    return {version: text.strip() for version, text in zip(parts[::2], parts[1::2], strict=True)}


def test_pkg_1_the_project_states_the_version_once() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in tables["project"] and tables["project"]["dynamic"] == ["version"]
    (provider,) = tables["tool"]["dynamic-metadata"]
    assert (provider["field"], provider["input"]) == ("version", "service/imp_service/__init__.py")
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_pkg_1_what_is_installed_has_this_version() -> None:
    (name,) = installed_distributions()
    assert importlib.metadata.version(name) == __version__, "install imp again: the version changed"


def test_pkg_1_the_bill_of_materials_has_this_version() -> None:
    bill = json.loads((ROOT / "bill_of_materials.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == __version__


def test_pkg_1_the_changelog_begins_with_this_version() -> None:
    found = entries((ROOT / "CHANGELOG.md").read_text())
    assert next(iter(found)) == __version__
    assert all(found.values())


@pytest.mark.parametrize("changelog", ["", "# Changes\n", "# Changes\n\n## 9.9.9\n\n- More.\n"])
def test_pkg_1_a_changelog_without_this_version_is_found(changelog: str) -> None:
    assert __version__ not in entries(changelog)


def test_pkg_1_documents_and_manifests_name_this_version() -> None:
    found = {path: IMAGE_TAG.findall(path.read_text()) for path in pages()}
    tags = {path: {first or second for first, second in tags} for path, tags in found.items() if tags}
    assert len(tags) >= 2
    assert {path: versions for path, versions in tags.items() if versions != {__version__}} == {}


def test_pkg_1_imp_version_says_what_is_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "imp_service", "--version"]
    ran = subprocess.run(command, env=clean_environment(tmp_path), capture_output=True, text=True, check=True)
    first, *rest = ran.stdout.splitlines()
    assert (first, ran.stderr) == (f"imp {__version__}", "")
    facts = dict(line.split(": ", 1) for line in rest)
    assert facts == {
        "distribution": ", ".join(installed_distributions()),
        "revision": revision() or "unknown, not built from a checkout",
        "backends": ", ".join(backends()),
        "API": f"imp.v1, revision {API_REVISION}",
    }
    assert facts["distribution"] in DISTRIBUTIONS and facts["backends"] in ("cpu", "cpu, cuda")
