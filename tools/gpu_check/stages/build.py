"""Builds and installs imp with its CUDA backend and its tests' extension, from what is on this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
import tomllib

from gpu_check.context import ROOT, Context, StageError, python

SITE = ROOT / "build" / "gpu_check_site"
EXTRAS = ("test",)


def run(context: Context, seconds: float) -> None:
    begin = time.monotonic()
    if context.wheels:
        install_missing(context)
    if context.is_dry:
        way, place = "what is installed", ""
    elif importlib.util.find_spec("scikit_build_core"):
        way, place = "pip", ""
        started([sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps", str(ROOT)])
    else:
        way, place = "cmake", str(SITE)
        build_with_cmake()
    context.record("built", way=way, python_path=place, seconds=time.monotonic() - begin)
    kernels = imported(context)
    context.record("kernels", names=kernels, n=len(kernels))
    context.record("packages missing", names=missing())


def install_missing(context: Context) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    names = sorted(str(path) for path in (context.wheels or ROOT).glob("*.whl"))
    if names:
        started([*command, *names])


def build_with_cmake() -> None:
    """Where the packager is not: its work by hand."""
    folder = ROOT / "build" / "gpu_check"
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = ["-DIMP_CUDA=on", "-DIMP_TESTING=ON", "-DCMAKE_BUILD_TYPE=Release"]
    options += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"]
    started(["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options])
    started(["cmake", "--build", str(folder)])
    package = SITE / "imp_service"
    package.mkdir(parents=True, exist_ok=True)
    started(["cp", "-r", f"{ROOT / 'service' / 'imp_service'}/.", str(package)])
    started(["cmake", "--install", str(folder), "--prefix", str(package)])


def started(command: list[str]) -> None:
    print("+", " ".join(command), flush=True)
    environment = {**os.environ, "IMP_CUDA": "on", "IMP_TESTING": "ON"}
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if status != 0:
        raise StageError(f"{command[0]} {command[1]} ended with status {status}")


def imported(context: Context) -> list[str]:
    """The names of the kernels, from a process of its own: this one has not the new paths."""
    code = f"from imp_service import _core, _testing; print(*(k['name'] for k in _core.kernels({context.kind!r})))"
    found = subprocess.run(
        [*python(), "-c", code], cwd="/", env=context.environment(), capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise StageError(f"imp cannot be imported: {found.stderr.strip().splitlines()[-1]}")
    return found.stdout.split()


def missing() -> list[str]:
    """Packages that imp or its tests name and that are not here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    found = []
    for line in lines:
        name = re.split(r"[\[<>=!~; ]", line)[0]
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(name)
    return found
