"""No input from others becomes code, and every dependency has a minimum version."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

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
def test_b01_a_danger_is_found(line: str):
    assert len(dangers(line)) == 1


def test_b08_every_package_has_a_floor_and_known_holes_lie_below_it():
    found = requirements()
    assert [line for line in found.values() if not re.search(r">=|==", line)] == []
    for package, floor in FLOORS.items():
        version = re.search(r">=([0-9.]+)", found[package])
        assert version is not None, package  # narrows
        assert tuple(int(part) for part in version[1].split(".")) >= floor
