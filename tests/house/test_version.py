"""One version: `imp_service.__version__` states it, and every other mention of imp's version agrees."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from imp_service import __version__
from imp_service.api.revision import API_REVISION
from imp_service.cli.version import DISTRIBUTIONS, installed_distributions
from imp_service.core.installation import backends, revision
from support.machine.command_line import clean_environment

ROOT = Path(__file__).resolve().parents[2]
# Versions of imp as documents and manifests spell them: tags and a label of images.
TAGS = (r"registry\.example/(?:\w+/)?imp:([\w.]+)", r'newName: registry\.example\S+, newTag: "([\w.]+)"')
IMAGE_VERSION = re.compile("|".join((*TAGS, r'org\.opencontainers\.image\.version="([\w.]+)"')))


def pages() -> list[Path]:
    files = [ROOT / "README.md", ROOT / "conf" / "Containerfile"]
    return [*files, *(ROOT / "docs").glob("*.md"), *(ROOT / "conf").rglob("*.yaml")]


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


def test_pkg_1_documents_and_manifests_name_this_version() -> None:
    found = {path: IMAGE_VERSION.findall(path.read_text()) for path in pages()}
    versions = {path: {"".join(groups) for groups in matches} for path, matches in found.items() if matches}
    assert len(versions) >= 3
    assert {path: named for path, named in versions.items() if named != {__version__}} == {}


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
