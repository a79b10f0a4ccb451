"""If a real GPU is required, no test uses the emulated one in its place: passed tests have run on hardware."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpu_check.context import Context
from gpu_check.stages.numerics import files_of_tests

ROOT = Path(__file__).resolve().parents[2]
EMULATED, MARK = "cuda_emulated", "emulated_only"
COLLECT = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "support.run.required_gpu",
           "--assert=plain", "--collect-only")  # fmt: skip


def collected(paths: Iterable[Path]) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "IMP_REQUIRE_GPU": "1", "PYTHONPATH": places}
    command = [*COLLECT, *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_hon_18_no_test_that_claims_the_gpu_is_given_the_emulator(tmp_path: Path) -> None:
    found = collected(files_of_tests(Context(tmp_path)))
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    assert "[cuda" in found.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ('["cuda_emulated", "cuda"][:1]', "test_claim.py::test_a[cuda_emulated]"),
        ('[("cpu", "qwen3"), ("cuda_emulated", "qwen3")]', "test_claim.py::test_a[device1]"),
        ('[core.Device(kind="cuda_emulated")]', "Device('cuda_emulated')"),
    ],
)
def test_hon_18_control_a_claim_is_found(tmp_path: Path, parameter: str, said: str) -> None:
    path = tmp_path / "test_claim.py"
    path.write_text(
        "import pytest\nfrom imp_service import _testing as core\nfrom support.kernels.devices import GPU_KINDS\n"
        f'@pytest.mark.parametrize("device", {parameter})\ndef test_a(device): assert device in GPU_KINDS\n'
    )
    found = collected([path])
    assert found.returncode != 0
    assert said in found.stderr + found.stdout


def names_the_emulator(node: ast.AST) -> bool:
    """Returns whether code names the emulated GPU other than in a comparison."""
    compared = {id(each) for part in ast.walk(node) if isinstance(part, ast.Compare) for each in ast.walk(part)}
    return any(
        isinstance(each, ast.Constant) and each.value == EMULATED and id(each) not in compared
        for each in ast.walk(node)
    )


def strays_of(source: str) -> list[str]:
    """Returns tests that use the emulated device without a mark, directly or through a function of the same file."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    using = {node.name for node in functions if names_the_emulator(node)}
    found = []
    for node in functions:
        called = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        marked = any(isinstance(mark, ast.Name) and mark.id == MARK for mark in node.decorator_list)
        if node.name.startswith("test_") and (node.name in using or called & using) and not marked:
            found.append(node.name)
    return found


def test_hon_18_what_asks_the_emulator_alone_says_so(tmp_path: Path) -> None:
    found = {str(path.relative_to(ROOT)): strays_of(path.read_text()) for path in files_of_tests(Context(tmp_path))}
    assert {path: strays for path, strays in found.items() if strays} == {}


def test_hon_18_control_a_test_that_hides_the_emulator_is_found() -> None:
    source = """
def helped(): return core.Device(kind="cuda_emulated")
def test_a(): helped()
def test_b(device): run("cuda_emulated")
def test_c(device): assert device == "cuda_emulated"
@emulated_only
def test_d(): helped()
"""
    assert strays_of(source) == ["test_a", "test_b"]
