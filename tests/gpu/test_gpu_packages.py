"""Missing packages of a GPU machine are reported before a build, and come from a folder that may have other wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag, sys_tags

from gpu_check import packages
from gpu_check.context import Context, StageError
from gpu_check.stages import build, probe

HERE = {"numpy": "2.4.6", "protobuf": "5.29.0", "requests": "2.0"}


def wheel(folder: Path, name: str, *needs: str, tag: str = "py3-none-any") -> Path:
    path = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = [f"Name: {name}", *(f"Requires-Dist: {need}" for need in needs)]
        archive.writestr(f"{name}.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


def needed(*lines: str) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def test_what_is_lacking_is_named_with_the_version_that_does_not_do() -> None:
    found = packages.lacking(HERE, needed("gguf>=0.17", "protobuf<8,>=6.31.1", "numpy>=1.26"))
    assert found == ["gguf>=0.17", "protobuf<8,>=6.31.1 (5.29.0 is here)"]
    names = {each.name for each in packages.requirements()}
    assert {"gguf", "numpy", "pybind11", "grpcio-health-checking", "pytest-timeout", "llguidance"} <= names
    assert not names & {"cmake", "ninja", "grpcio-tools", "torch"}
    assert "pybind11" not in {each.name for each in packages.requirements(is_built=False)}


def test_all_of_it_is_said_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda: HERE)
    with pytest.raises(StageError, match=r"^lacking here: nvcc, gguf>=0\.17, b; .*--gather") as error:
        packages.require(needed("gguf>=0.17", "numpy", "b"), ["nvcc"])
    assert "--wheels" in str(error.value)
    packages.require(needed("numpy"), [])


def test_the_check_of_what_is_needed_comes_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda: {})
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("it was built"))
    with pytest.raises(StageError, match=r"numpy>=.*gguf>="):
        build.run(Context(tmp_path), 10.0)


def test_wheels_of_another_python_are_passed_over(tmp_path: Path) -> None:
    other = wheel(tmp_path, "grpcio-1.85.1", tag="cp299-cp299-manylinux_2_17_x86_64")
    new, _ = wheel(tmp_path, "gguf-0.19.0"), wheel(tmp_path, "gguf-0.17.0")
    (tmp_path / "odd.whl").touch()
    found, passed_over = packages.usable(tmp_path, set(sys_tags()))
    assert found == {"gguf": new}
    assert passed_over == [other.name, "odd.whl"]
    assert packages.usable(tmp_path, {Tag("cp299", "cp299", "manylinux_2_17_x86_64")})[0] == {"grpcio": other}


def test_only_what_does_not_fit_is_laid_out_and_what_that_needs(tmp_path: Path) -> None:
    status = wheel(tmp_path, "grpcio_status-1.85.1", "protobuf>=6.33", 'torch; extra == "x"', 'a; python_version < "3"')
    protobuf, requests = wheel(tmp_path, "protobuf-6.33.0"), wheel(tmp_path, "requests-2.34.2")
    numpy, torch = wheel(tmp_path, "numpy-2.5.5"), wheel(tmp_path, "torch-2.11.0")
    wheels, _ = packages.usable(tmp_path, set(sys_tags()))
    assert set(wheels.values()) == {status, protobuf, requests, numpy, torch}
    # This protobuf fits imp, but not the grpcio-status that fits imp.
    here = {**HERE, "protobuf": "6.32.0"}
    assert packages.chosen_of(wheels, here, needed("grpcio-status", "protobuf>=6.31", "numpy")) == [status, protobuf]
    assert packages.chosen_of(wheels, here, needed("protobuf>=6.31", "requests")) == []


def test_a_wheel_that_cannot_be_used_is_noted_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    other = wheel(wheels, "grpcio-1.85.1", tag="cp299-cp299-any")
    monkeypatch.setattr(build, "WHEELS", tmp_path / "laid_out")
    context = Context(tmp_path, is_dry=True, wheels=wheels, stage="build")
    build.run(context, 10.0)
    [note] = context.found("build", "note")
    assert note["text"] == f"of another Python or platform: {other.name}"
    assert context.found("build", "built")


def test_a_machine_without_git_has_a_commit_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda _: None)
    assert probe.commit()


# The two ways to build.


def test_where_the_packager_fails_cmake_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def started(command: list[str], environment: dict[str, str]) -> None:
        assert environment["IMP_WERROR"] == "OFF"
        commands.append(command)
        if "pip" in command:
            raise StageError("pip ended with status 1")

    monkeypatch.setattr(build, "started", started)
    monkeypatch.setattr(build, "packager", list)  # it is installed
    monkeypatch.setattr(build, "pybind11_folder", lambda environment: "/where/pybind11/is")
    monkeypatch.setattr(build, "SITE", tmp_path / "site")
    context = Context(tmp_path, stage="build")
    assert build.build(context, [], float("inf")) == ("cmake", [str(tmp_path / "site")])
    assert (tmp_path / "site" / "imp_service" / "__init__.py").exists()
    pip, configured, *_ = (" ".join(command) for command in commands)
    assert "--config-settings=cmake.define.IMP_WERROR=OFF" in pip
    assert "-DIMP_WERROR=OFF" in configured
    assert "-Dpybind11_DIR=/where/pybind11/is" in configured
    with pytest.raises(StageError, match="pip ended"):
        build.build(context, [], 0.0)
