"""An environment as a user's: the installed imp without its extension for tests, and none of the test packages."""

from __future__ import annotations

import importlib.metadata
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import imp_service
from imp_service import _core

ROOT = Path(__file__).resolve().parents[3]
# The parts of the package that only a build for tests has.
FOR_TESTS = ("_testing.", "libemulated_")


def make_environment(folder: Path, *extras: str) -> Path:
    """Makes an environment of imp, its dependencies, and those of the extras as far as they are installed here.

    Links to the installed files take the place of an installation. Returns the environment's Python.
    """
    venv.create(folder, with_pip=False)
    (place,) = (folder / "lib").glob("python*/site-packages")
    package = place / "imp_service"
    package.mkdir()
    for source in [*Path(imp_service.__file__).parent.iterdir(), Path(_core.__file__)]:
        link = package / source.name
        if not source.name.startswith(FOR_TESTS) and not link.exists():
            link.symlink_to(source)
    for distribution in distributions(requirements(extras)):
        for part in parts_of(distribution):
            link = place / part
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(distribution.locate_file(part))))
    return folder / "bin" / "python"


def requirements(extras: Iterable[str]) -> list[Requirement]:
    """Returns what pyproject.toml requires for imp and the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def distributions(required: list[Requirement]) -> Iterator[Distribution]:
    """Yields the installed distributions among these, and those that they need."""
    pending, seen = [*required], set[tuple[str, str]]()
    yielded = set[str]()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name not in yielded and (found := installed(name)) is not None:
            yielded.add(name)
            yield found
        for extra in ("", *requirement.extras):
            if (name, extra) in seen or (found := installed(name)) is None:
                continue
            seen.add((name, extra))
            needed = map(Requirement, found.requires or ())
            pending += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]


def installed(name: str) -> Distribution | None:
    """Returns an installed distribution."""
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def parts_of(distribution: Distribution) -> set[Path]:
    """Returns the distribution's own files and folders. A folder without __init__.py may belong to several."""
    files = {Path(file) for file in distribution.files or () if not {"..", "__pycache__"} & set(file.parts)}
    packages = {file.parent for file in files if file.name == "__init__.py"}
    return {first_own(file, packages) for file in files}


def first_own(file: Path, packages: set[Path]) -> Path:
    """Returns the outermost folder of the file that is a package or has a suffix, such as .libs, or the file itself."""
    folders = [*reversed(file.parents)][1:]
    return next((folder for folder in folders if folder in packages or folder.suffix), file)
