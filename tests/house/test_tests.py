"""Rules for tests: every file has tests, bounds are in one place, and everything that is named exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.run.defined_tests import definitions, files_of_tests

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TOLERANCES = TESTS / "support" / "oracles" / "tolerances.py"
# A small number in a comparison, or a tolerance keyword of a comparison.
TYPED_TOLERANCE = re.compile(r"<=?\s*\d*\.?\d*e-\d+|\b(?:atol|rtol|rel|abs)=\s*[\d.]+(?:e-?\d+)?\b")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
# The number of past findings, one file each, never decreases.
FINDINGS_AT_LEAST = 65
# If their number grows beyond this, raise the minimum: one far below the number has no effect.
MOST_BEHIND, SPARE = 1.25, 10


def test_hon_4_every_file_of_tests_has_tests() -> None:
    assert sorted(set(files_of_tests()) - {test.path for test in definitions()}) == []


def test_hon_17_no_finding_is_lost() -> None:
    findings = [path for path in (TESTS / "corpus").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert FINDINGS_AT_LEAST <= len(findings) <= MOST_BEHIND * FINDINGS_AT_LEAST + SPARE


@pytest.mark.long
def test_hon_4_a_filter_that_matches_nothing_fails() -> None:
    command = [*PYTEST, "-k", "no_such_test", str(Path(__file__))]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 5


@pytest.mark.long
def test_hon_5_a_path_that_is_named_must_be_there() -> None:
    command = [*PYTEST, "-x", str(TESTS / "service" / "text" / "test_tokenizer_vectors.py")]
    environment = {**os.environ, "IMP_TOKENIZER_VECTORS": "/no/such/folder"}
    found = subprocess.run(
        [*command, "-k", "vectors"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1, found.stdout


def test_hon_10_tolerances_stand_in_one_file() -> None:
    files = [path for path in sorted(TESTS.rglob("*.py")) if path not in (TOLERANCES, Path(__file__))]
    strays = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path in files
        for match in TYPED_TOLERANCE.finditer(re.sub(r"#[^\n]*|\"\"\".*?\"\"\"", "", path.read_text(), flags=re.DOTALL))
        if path.name not in ("script_oracle.py", "sampling_oracle.py")  # the definition's own 1e-4
    ]
    assert strays == []


def test_hon_10_a_typed_tolerance_is_found() -> None:
    assert TYPED_TOLERANCE.search("assert error < 1e-3")
    assert TYPED_TOLERANCE.search("np.allclose(a, b, rtol=1e-5)")
    assert not TYPED_TOLERANCE.search("assert error < tolerances.LOGPROB")
