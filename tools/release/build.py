"""Builds the source distribution and the wheels, each in its own folder, and gives wheels their platform tag."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from release.checkout import Checkout, ReleaseError, export
from release.distributions import DISTRIBUTIONS, PLAIN, Distribution, rename

# The folder of imp-client in the sources.
CLIENT = "clients/python"


@dataclass(frozen=True)
class Tools:
    """A virtual environment with the packages that build imp and those that check its packages (extra `release`)."""

    folder: Path

    @classmethod
    def install(cls, checkout: Checkout, folder: Path) -> Tools:
        """Makes a new environment."""
        documents = [tomllib.loads((checkout.root / path / "pyproject.toml").read_text()) for path in (".", CLIENT)]
        wanted = [each for document in documents for each in document["build-system"]["requires"]]
        wanted += documents[0]["project"]["optional-dependencies"]["release"]
        tools = cls(folder)
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        tools.run(["python", "-m", "pip", "install", "--quiet", *wanted])
        return tools

    def run(self, words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """Runs a program of the environment; returns what it prints."""
        bin_folder = self.folder / "bin"
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        return run([str(bin_folder / words[0]), *words[1:]], cwd=cwd, env={**os.environ, **(env or {}), "PATH": path})


def build_sdist(tools: Tools, checkout: Checkout, folder: Path, work: Path) -> Path:
    """Builds the source distribution of the commit."""
    source = work / "source"
    export(checkout, source)
    tools.run(["python", "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(source)])
    return folder / f"{PLAIN.file_name}-{checkout.version}.tar.gz"


def unpack(sdist: Path, distribution: Distribution, folder: Path) -> Path:
    """Unpacks the sources of a distribution into a new folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    rename(source, distribution)
    return source


def build_wheel(tools: Tools, distribution: Distribution, source: Path, raw: Path) -> Path:
    """Builds a wheel for this Python and this machine in a new folder."""
    # Warnings are errors, as in the build for the tests, so that a compiler cache can reuse its results.
    chosen = {"IMP_CUDA": distribution.cuda, "IMP_TESTING": "OFF", "CMAKE_ARGS": "-DIMP_WERROR=ON"}
    tools.run(["python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(raw), str(source)], env=chosen)
    (wheel,) = raw.iterdir()
    return wheel


def build_client(tools: Tools, source: Path, folder: Path) -> Path:
    """Builds the wheel of imp-client, which is the same for every Python and machine."""
    before = set(folder.iterdir())
    tools.run(["python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source / CLIENT)])
    (wheel,) = set(folder.iterdir()) - before
    return wheel


def repair(tools: Tools, wheel: Path, folder: Path) -> Path:
    """Returns the wheel with auditwheel's platform tag, which names the oldest glibc that it runs on."""
    before = set(folder.iterdir())
    tools.run(["auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)])
    (repaired,) = set(folder.iterdir()) - before
    if "manylinux" not in repaired.name:
        raise ReleaseError(f"{repaired.name}: expected a tag of manylinux, so that an index takes it")
    return repaired


def check_wheel(wheel: Path, checkout: Checkout) -> Distribution:
    """Returns the distribution of a wheel. Raises ReleaseError if the wheel is not of this commit's version."""
    found = re.match(r"(\w+)-([^-]+)-", wheel.name)
    distribution = next((d for d in DISTRIBUTIONS if found is not None and d.file_name == found[1]), None)
    if found is None or distribution is None or found[2] != checkout.version:
        names = " or ".join(f"{d.file_name}-{checkout.version}-…" for d in DISTRIBUTIONS)
        raise ReleaseError(f"{wheel.name}: expected {names}")
    with zipfile.ZipFile(wheel) as archive:
        revision = archive.read("imp_service/revision.txt").decode().strip()
        if revision != checkout.commit:
            raise ReleaseError(f"{wheel.name} was built of {revision or 'no checkout'}, expected {checkout.commit}")
        if any(Path(name).name.startswith("_testing.") for name in archive.namelist()):
            raise ReleaseError(f"{wheel.name} has the extension for tests, expected a build without IMP_TESTING")
    return distribution


def run(words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Runs a program; returns what it prints. Raises ReleaseError with its last lines if it fails."""
    ran = subprocess.run(
        words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode != 0:
        raise ReleaseError(f"{' '.join(words)}: exit status {ran.returncode}\n{ran.stdout[-8000:]}")
    return ran.stdout
