"""No input becomes code, packages have minimum versions, and the bill of materials has all, with their licences."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from imp_service import _core

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "imp_service"
# Forbidden calls, by the last two parts of their names, and forbidden imports.
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "torch.load"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
# Versions below these have known vulnerabilities.
FLOORS = {"jinja2": (3, 1, 6), "protobuf": (6, 31, 1)}


def dangers(source: str) -> list[str]:
    """Returns calls and imports by which data could become code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module)] if str(node.module).split(".")[0] in FORBIDDEN_MODULES else []
        elif isinstance(node, ast.Call):
            name = ".".join(ast.unparse(node.func).split(".")[-2:])
            shell = any(k.arg == "shell" and not _is_false(k.value) for k in node.keywords)
            found += [name] if name in FORBIDDEN_CALLS or shell else []
    return found


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def requirements() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {re.split(r"[\[<>=!~]", line)[0]: line for line in lines}


def test_b01_nothing_that_comes_from_outside_is_run():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    assert [f"{p.relative_to(PACKAGE)}: {danger}" for p in files for danger in dangers(p.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        "eval('1')",
        "import pickle",
        "from marshal import loads",
        "yaml.load(text)",
        "torch.load(path)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
    ],
)
def test_b01_a_dangerous_line_is_found(line: str):
    assert len(dangers(line)) == 1


def test_b08_every_package_has_a_floor_and_known_holes_lie_below_it():
    found = requirements()
    assert [line for line in found.values() if not re.search(r">=|==", line)] == []
    for package, floor in FLOORS.items():
        version = re.search(r">=([0-9.]+)", found[package])
        assert version is not None, package  # narrows
        assert tuple(int(part) for part in version[1].split(".")) >= floor


TOOL = ROOT / "tools" / "write_bill_of_materials.py"
BILL = ROOT / "bill_of_materials.cdx.json"
# Files that the loader needs -> their component.
LIBRARIES = {
    "libstdc++": "libstdc++",
    "libgcc_s": "libgcc",
    "libc": "glibc",
    "libm": "glibc",
    "ld-linux-x86-64": "glibc",
}


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_bill_of_materials", TOOL)
    assert spec is not None and spec.loader is not None  # narrows
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def components(text: str) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(text)["components"]}


def test_b13_the_bill_is_fresh() -> None:
    told = subprocess.run([sys.executable, "-P", TOOL, "--check"], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "bill_of_materials.cdx.json is up to date\n")


def test_b13_a_bill_that_is_not_fresh_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tool()
    monkeypatch.setattr(sys, "argv", ["write_bill_of_materials.py", "--check"])
    for old, new in (("grpcio", "grpcoi"), ("Apache-2.0", "MIT")):
        stale = tmp_path / "bill.json"
        stale.write_text(BILL.read_text().replace(old, new, 1))
        monkeypatch.setattr(module, "TARGET", stale)
        assert module.main() == 1
        assert "out of date" in capsys.readouterr().out


def test_b13_every_package_that_is_asked_for_is_listed_with_its_range() -> None:
    listed = components(BILL.read_text())
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [(line, "required") for line in tables["dependencies"]]
    asked += [(line, "optional") for extra in ("otel", "ray") for line in tables["optional-dependencies"][extra]]
    assert len(asked) > 15
    for line, scope in asked:
        name, wanted = re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?(.*)", line).groups()  # type: ignore[union-attr]
        ranges = {each["name"]: each["value"] for each in listed[name]["properties"]}
        assert (listed[name]["scope"], listed[name]["purl"]) == (scope, f"pkg:pypi/{name}")
        assert set(ranges["imp:requirement"].split(",")) == set(wanted.split(","))
        assert listed[name]["licenses"][0]["expression"]


def test_b13_every_library_that_the_extension_is_linked_with_is_listed() -> None:
    with Path(_core.__file__).open("rb") as file:
        (dynamic,) = ELFFile(file).iter_segments("PT_DYNAMIC")
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    listed = {name for name, each in components(BILL.read_text()).items() if each["bom-ref"].startswith("linked:")}
    assert {LIBRARIES[name.partition(".so")[0]] for name in needed} <= listed == set(LIBRARIES.values())


def test_b13_licences_are_those_that_the_packages_state() -> None:
    licences = tool().LICENCES
    stated = {}
    for name in licences:
        try:
            stated[name] = importlib.metadata.metadata(name).get("License-Expression")
        except importlib.metadata.PackageNotFoundError:
            continue  # part of an extra that is not installed
    known = {name: licence for name, licence in stated.items() if licence}
    assert len(known) >= 5
    # A package may contain parts with other licences.
    assert {name for name, licence in known.items() if licences[name] not in re.split(r" AND | OR ", licence)} == set()


def test_b13_the_bill_of_an_environment_has_exact_versions_of_all_that_is_needed() -> None:
    told = subprocess.run([sys.executable, "-P", TOOL, "--installed"], capture_output=True, text=True, check=True)
    listed = components(told.stdout)
    # Packages that pyproject.toml does not name, but whose dependents it names.
    assert {"grpcio", "numpy", "markupsafe", "typing-extensions"} <= listed.keys()
    for name, each in listed.items():
        assert each["version"] == importlib.metadata.version(name)
        assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
