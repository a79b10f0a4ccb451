"""Builds and installs imp with its CUDA backend and its tests' extension, from what is on this machine."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from gpu_check import packages, sources
from gpu_check.context import BUILD, ROOT, Context, StageError, python

SITE = BUILD / "gpu_check_site"
WHEELS = BUILD / "gpu_check_wheels"
# For both ways to build. Unknown compilers may give new warnings, which must not stop the measurements.
OPTIONS = {"IMP_CUDA": "on", "IMP_TESTING": "ON", "IMP_WERROR": "OFF"}
LEAST_CMAKE = (3, 28)
# The second way does not start with less time left.
LEAST_SECONDS = 60


def run(context: Context, seconds: float) -> None:
    begin = time.monotonic()
    places = lay_out_wheels(context)
    packages.require(needed(context), [] if context.is_dry else programs_lacking())
    if context.is_dry:
        way = "what is installed"
    else:
        way, place = build(context, places, begin + seconds)
        places = [*place, *places]
        context.python_path_file.write_text(os.pathsep.join(places))
    context.record("built", way=way, python_path=os.pathsep.join(places), seconds=time.monotonic() - begin)
    kernels = imported(context)
    if problem := sources.unknown(context.only, kernels):
        raise StageError(problem)
    context.record("kernels", names=kernels, n=len(kernels))


def lay_out_wheels(context: Context) -> list[str]:
    """Installs the wheels. Returns their folder and adds it to the front of this process's path."""
    if context.wheels is None:
        return []
    for note in packages.lay_out(context.wheels, WHEELS):
        context.note(note)
    if not WHEELS.is_dir():
        return []
    sys.path.insert(0, str(WHEELS))
    importlib.invalidate_caches()
    return [str(WHEELS)]


def needed(context: Context) -> list[packages.Requirement]:
    """Returns the requirements without the packager, which CMake can replace."""
    found = packages.requirements(is_built=not context.is_dry)
    return [each for each in found if each.name != packages.PACKAGER]


def programs_lacking() -> list[str]:
    """Returns the missing build programs that are not Python packages."""
    lack = [name for name in ("c++", "ninja") if shutil.which(name) is None]
    if not (os.environ.get("CUDACXX") or shutil.which("nvcc")):
        lack.append("nvcc (on the PATH, or CUDACXX)")
    cmake = shutil.which("cmake")
    said = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False).stdout if cmake else ""
    version = re.search(r"version (\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < LEAST_CMAKE:
        lack.append("cmake>=3.28" + (f" ({version[1]}.{version[2]} is here)" if version else ""))
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        lack.append("Python.h (of python3-dev)")
    return lack


def build(context: Context, places: list[str], end: float) -> tuple[str, list[str]]:
    """Returns the way of the build, and the folders of imp that are not on Python's default path."""
    environment = {**os.environ, **OPTIONS}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*places, os.environ.get("PYTHONPATH", "")]))
    if packages.lacking(packages.installed(), packager()):
        context.note(f"no {packages.PACKAGER}: CMake builds imp by itself")
    else:
        try:
            started(pip_command(), environment)
        except StageError as error:
            if end - time.monotonic() < LEAST_SECONDS:
                raise
            context.note(f"{error}: CMake builds imp by itself")
        else:
            return "pip", []
    build_with_cmake(environment)
    return "cmake", [str(SITE)]


def packager() -> list[packages.Requirement]:
    return [each for each in packages.requirements() if each.name == packages.PACKAGER]


def pip_command() -> list[str]:
    defines = [f"--config-settings=cmake.define.{name}={value}" for name, value in OPTIONS.items()]
    return [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps",
            "--disable-pip-version-check", *defines, str(ROOT)]  # fmt: skip


def pybind11_folder(environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "pybind11", "--cmakedir"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def build_with_cmake(environment: dict[str, str]) -> None:
    """Builds and installs imp without the packager."""
    folder = BUILD / "gpu_check_cmake"
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()] + ["-DCMAKE_BUILD_TYPE=Release"]
    options += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11_folder(environment)}"]
    started(["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options], environment)
    started(["cmake", "--build", str(folder)], environment)
    package = SITE / "imp_service"
    shutil.copytree(ROOT / "service" / "imp_service", package, dirs_exist_ok=True)
    started(["cmake", "--install", str(folder), "--prefix", str(package)], environment)


def started(command: list[str], environment: dict[str, str]) -> None:
    print("+", " ".join(command), flush=True)
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if status != 0:
        raise StageError(f"{' '.join(command[:4])} ended with status {status}")


def imported(context: Context) -> list[str]:
    """Returns the names of the kernels. Uses a new process, because this one lacks the new paths."""
    code = f"from imp_service import _core, _testing; print(*(k['name'] for k in _core.kernels({context.kind!r})))"
    found = subprocess.run(
        [*python(), "-c", code], cwd="/", env=context.environment(), capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise StageError(f"imp cannot be imported: {packages.last_line(found.stderr)}")
    return found.stdout.split()
