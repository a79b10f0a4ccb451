"""imp under every Python that it supports: built, installed and tested, each in its own environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from support.machine.command_line import clean_environment
from support.run.patience import BUILD_SECONDS

ROOT = Path(__file__).resolve().parents[2]
# The tests that depend on the interpreter: the bindings, the text layer, a server and its client.
ROOMS = (
    "tests/engine/test_binding_lifetimes.py",
    "tests/engine/test_sessions.py",
    "tests/service/config",
    "tests/service/generation",
    "tests/service/models",
    "tests/service/text",
    "tests/service/rpc/test_equivalence.py",
    "tests/service/rpc/test_generate_endings.py",
    "tests/service/cli/test_run.py",
)
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def others() -> list[str]:
    """Returns the versions in pyproject.toml except the first, which CI itself runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    versions = sorted(int(line.removeprefix(prefix)) for line in project["classifiers"] if line.startswith(prefix))
    return [f"3.{minor}" for minor in versions[1:]]


def interpreter(version: str) -> str:
    """Returns an interpreter of this version, on PATH or from pyenv; skips the test if none works."""
    candidates = [shutil.which(f"python{version}"), *PYENV.glob(f"versions/{version}.*/bin/python")]
    for candidate in filter(None, candidates):
        # pyenv puts shims on PATH for versions that are not selected; these fail.
        found = subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False)
        if found.returncode == 0:
            return str(candidate)
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.skipif(
    "IMP_PYTHONS" not in os.environ, reason="IMP_PYTHONS=1 asks for it: it builds imp for other interpreters"
)
@pytest.mark.timeout(4 * BUILD_SECONDS)
@pytest.mark.parametrize("version", others())
def test_imp_builds_and_works_under_every_supported_python(version: str, tmp_path: Path) -> None:
    # In a folder of this tree and with tools whose paths stay the same, so that ccache knows the files next time.
    venv = ROOT / "build" / f"ci-python-{version}"
    subprocess.run([interpreter(version), "-m", "venv", "--clear", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    # Built without CUDA, because the CUDA code does not depend on the interpreter.
    environment = {**os.environ, "IMP_TESTING": "ON", "IMP_CUDA": "off"}
    environment.pop("PYTHONPATH", None)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for install in (tools, ["--no-build-isolation", f"{ROOT}[test]"]):
        command = [python, "-m", "pip", "install", "-q", *install]
        subprocess.run(command, check=True, env=environment, timeout=2 * BUILD_SECONDS)
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n2", *ROOMS]
    kept = {
        name: value
        for name, value in clean_environment(tmp_path).items()
        if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")
    }
    ran = subprocess.run(tests, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert " passed" in ran.stdout
