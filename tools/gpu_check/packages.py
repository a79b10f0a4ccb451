"""The Python packages that a check needs: finds missing ones, and installs them from wheels."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path

from gpu_check.context import ROOT, StageError

try:
    from packaging.requirements import Requirement
    from packaging.tags import Tag, sys_tags
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
except ModuleNotFoundError:  # pip contains a copy
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.tags import Tag, sys_tags
    from pip._vendor.packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

# Packages of the extra `test` that no GPU test imports.
NOT_FOR_GPUS = frozenset({
    "buf-bin", "grpcio-tools", "jsonschema", "kubernetes-validate", "nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm",
    "opentelemetry-sdk", "pybind11", "pyelftools", "trustme",
})  # fmt: skip
# Build requirements: programs, and a packager that CMake can replace.
PROGRAMS = frozenset({"cmake", "ninja"})
PACKAGER = "scikit-build-core"
# Platform tags of wheels for Linux on x86-64.
PLATFORMS = ("manylinux1", "manylinux2014", *(f"manylinux_2_{n}" for n in (5, 12, 17, 24, 27, 28, 31, 34, 35)))

Versions = Mapping[str, str]


def requirements(*, is_built: bool = True) -> list[Requirement]:
    """Returns the requirements in pyproject.toml, with or without those of the build."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    tested = [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["test"])]
    building = [Requirement(line) for line in document["build-system"]["requires"]] if is_built else []
    return [each for each in tested if each.name not in NOT_FOR_GPUS] + [
        each for each in building if each.name not in PROGRAMS
    ]


def installed() -> Versions:
    """Returns the installed versions by name."""
    importlib.invalidate_caches()
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():  # in the order of sys.path: the first counts
        if distribution.metadata["Name"]:
            found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution.version)
    return found


def fits(requirement: Requirement, here: Versions) -> bool:
    version = here.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def lacking(here: Versions, needed: Iterable[Requirement]) -> list[str]:
    """Returns the missing requirements, with the installed version if it does not fit."""
    found = []
    for each in needed:
        if not fits(each, here):
            version = here.get(canonicalize_name(each.name))
            found.append(f"{each.name}{each.specifier}" + (f" ({version} is here)" if version else ""))
    return found


# Wheels.


def lay_out(folder: Path, into: Path) -> list[str]:
    """Installs missing packages from a folder of wheels into a folder for PYTHONPATH. Returns notes on problems."""
    wheels, passed_over = usable(folder, set(sys_tags()))
    chosen = chosen_of(wheels, installed(), requirements())
    notes = [f"of another Python or platform: {', '.join(passed_over)}"] if passed_over else []
    if chosen:
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--upgrade",
                   "--disable-pip-version-check", "--target", str(into), *map(str, chosen)]  # fmt: skip
        print("+", " ".join(command), flush=True)
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        print(done.stdout, flush=True)
        if done.returncode != 0:
            notes.append(f"pip could not install the wheels: {last_line(done.stdout)}")
    return notes


def usable(folder: Path, tags: set[Tag]) -> tuple[dict[str, Path], list[str]]:
    """Returns the newest wheel of each name for this Python, and the files for other Pythons."""
    newest: dict[str, tuple[object, Path]] = {}
    others = []
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, _, own = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            others.append(path.name)
            continue
        if not own & tags:
            others.append(path.name)
        elif name not in newest or version > newest[name][0]:  # type: ignore[operator]
            newest[name] = (version, path)
    return {name: path for name, (_, path) in newest.items()}, others


def chosen_of(wheels: Mapping[str, Path], here: Versions, needed: Sequence[Requirement]) -> list[Path]:
    """Returns the wheels of requirements that are not met here, and of their dependencies."""
    chosen: dict[str, Path] = {}
    waiting = list(needed)
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if name in chosen or name not in wheels or fits(each, here):
            continue
        chosen[name] = wheels[name]
        waiting += needs_of(wheels[name])
    return sorted(chosen.values())


def needs_of(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def gather(folder: Path, python: str) -> int:
    """Downloads all packages that a machine with this Python could lack, and prints their size."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(download_command(folder, python), check=False)
    found = sorted(folder.glob("*.whl"))
    print(f"{len(found)} wheels, {sum(path.stat().st_size for path in found) / (1 << 20):.0f} MiB in {folder}")
    return done.returncode


def download_command(folder: Path, python: str) -> list[str]:
    platforms = [word for platform in PLATFORMS for word in ("--platform", f"{platform}_x86_64")]
    names = [f"{each.name}{each.specifier}" for each in requirements()]
    return [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            "--dest", str(folder), "--implementation", "cp", "--python-version", python, *platforms,
            *names]  # fmt: skip


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "nothing was said"


def require(needed: Sequence[Requirement], more: Sequence[str]) -> None:
    """Raises StageError with everything that is missing, before slow work begins."""
    if lack := [*more, *lacking(installed(), needed)]:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise StageError(
            f"lacking here: {', '.join(lack)}; where there is a network `tools/gpu_check.py --gather FOLDER {python}` "
            "fetches packages for --wheels FOLDER"
        )
