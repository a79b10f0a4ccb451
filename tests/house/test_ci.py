"""The runner of .ci/run: a run that fails explains itself, and none passes without all of its tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ci.changes import changed_files
from ci.stages import plan_names, plan_tier, read_stages
from support.run.patience import HANGS_AFTER

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 60
STAGES = read_stages(ROOT)
GOOD = "def test_good(): pass\n"
BROKEN = "def test_broken():\n    total = 1 + 1\n    assert total == 3, 'a wrong sum'\n"
# Fails in the first run alone.
UNLUCKY = """
from pathlib import Path

def test_unlucky():
    seen = Path(__file__).with_name("seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""
KILLED = "import os, signal\ndef test_killed(): os.kill(os.getpid(), signal.SIGKILL)\n"


class Tree:
    """A checkout with stages of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".ci" / "stages").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "lib.sh", root / ".ci")
        shutil.copytree(ROOT / "tools" / "ci", root / "tools" / "ci")
        shutil.copy(ROOT / "tools" / "ci.py", root / "tools")
        (root / "conftest.py").write_text(
            "from support.run.run_record import record_run\ndef pytest_configure(config): record_run(config)\n"
        )
        (root / "pytest.ini").write_text("[pytest]\naddopts = -ra -p no:cacheprovider\n")

    def stage(self, name: str, script: str, tier: str = "gate", needs: Sequence[str] = ()) -> None:
        with (self.root / ".ci" / "stages.toml").open("a") as table:
            table.write(f'[[stage]]\nname = "{name}"\ndoes = "does {name}"\ntier = "{tier}"\nneeds = {list(needs)}\n')
        (self.root / ".ci" / "stages" / f"{name}.sh").write_text(f'source "$(dirname "$0")/../lib.sh"\n{script}\n')

    def tests(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / f"test_{name}.py").write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        unset = ("PYTEST_", "IMP_CI_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
        paths = [str(ROOT / "tests"), environment.get("PYTHONPATH", "")]
        return subprocess.Popen(
            [sys.executable, "tools/ci.py", *words],
            cwd=self.root,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "IMP_CI_VENV": "none"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Runs the runner; returns its status and what it printed."""
        process = self.start(*words)
        output, _ = process.communicate(timeout=HANGS_AFTER)
        return process.returncode, output


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def explanation(output: str) -> str:
    """Returns the end of a failed run, which must be short."""
    lines = output.splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith("== FAILED: stage ")]
    assert len(lines) - start <= MOST_LINES
    return "\n".join(lines[start:])


def test_hon_20_a_broken_test_is_named_with_its_first_line(tree: Tree) -> None:
    tree.tests(good=GOOD, broken=BROKEN)
    tree.stage("suite", "counted suite")
    tree.stage("later", "echo never")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert "== FAILED: stage suite" in told
    assert "command   python -m pytest -q\n" in told
    assert "end       exit status 1" in told
    assert "suite: 1 failed, 2 of 2 collected tests ran" in told
    assert "test_broken.py::test_broken\n      AssertionError: a wrong sum" in told
    assert "rerun     alone, 0 of 1 passed" in told
    assert f"log       {tree.root / 'build' / 'ci' / 'log.txt'}" in told
    assert re.fullmatch(r"1 failed, 1 passed in [\d.]+s", told.splitlines()[-1])
    assert "never" not in output
    log = (tree.root / "build" / "ci" / "log.txt").read_text()
    assert "def test_broken" in log


def test_hon_20_a_failed_install_is_named(tree: Tree) -> None:
    tree.stage("environment", "pip install --quiet --no-index no-such-package-of-imp\necho unreached")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert "command   pip install --quiet --no-index no-such-package-of-imp" in told
    assert "No matching distribution found for no-such-package-of-imp" in told
    assert "unreached" not in output


@pytest.mark.parametrize("options", ["", " . -n2 -p xdist"])
def test_hon_20_a_killed_test_process_fails_the_run_and_is_not_run_again(tree: Tree, options: str) -> None:
    tree.tests(good=GOOD, killed=KILLED, more=GOOD)
    tree.stage("suite", f"counted suite{options}")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert ("test_killed.py::test_killed" if options else "end       killed by SIGKILL") in told
    assert ("crashed while running" if options else "0 failed, 1 of 3 collected tests ran") in told
    assert "rerun     none" in told


def test_hon_20_a_full_run_goes_on_after_a_failed_stage_and_names_all_failures(tree: Tree) -> None:
    tree.tests(good=GOOD, broken=BROKEN)
    tree.stage("first", "echo first ran", "full")
    tree.stage("suite", "counted suite test_broken.py", "full")
    tree.stage("package", "echo never", "full", ["suite"])
    tree.stage("image", "echo never", "full", ["package"])
    tree.stage("arm", "false", "full")
    tree.stage("last", "counted last test_good.py", "full", ["first"])
    status, output = tree.run("full")
    start = output.index("== FAILED: suite, arm\n")
    assert status == 1
    assert "never" not in output
    assert "1 passed" in output and "s  last" in output
    end = output[start:].splitlines()
    assert len(end) <= MOST_LINES
    assert "  test_broken.py::test_broken: AssertionError: a wrong sum" in end
    assert "arm  false" in end
    assert "not run, because they need a failed stage: package, image" in end
    assert f"log  {tree.root / 'build' / 'ci' / 'log.txt'}" in end


def test_hon_20_a_killed_script_fails_the_run(tree: Tree) -> None:
    tree.stage("build", "echo begins\nkill -KILL $$")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert "command   bash .ci/stages/build.sh" in told
    assert "end       killed by SIGKILL" in told
    assert "begins" in told


def test_hon_20_a_run_that_is_ended_says_where_it_was(tree: Tree) -> None:
    tree.stage("build", "echo begins\nsleep 1000 & echo child $!\nwait")
    process = tree.start()
    lines = iter(process.stdout or ())
    child = next(int(line.split()[1]) for line in lines if line.startswith("child"))
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == 1
    assert "end       interrupted by SIGTERM" in explanation(output)
    until = time.monotonic() + HANGS_AFTER
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the stage goes on"


def test_hon_20_a_test_that_fails_once_is_named_in_a_run_that_passes(tree: Tree) -> None:
    tree.tests(good=GOOD, unlucky=UNLUCKY)
    tree.stage("suite", "counted suite")
    tree.stage("later", "echo reached")
    status, output = tree.run()
    assert status == 0, output
    listed = output.partition("== tests that failed, and passed when they ran again alone\n")[2]
    assert listed.startswith("test_unlucky.py::test_unlucky: assert False")
    assert "reached" in output
    assert re.fullmatch(r"1 failed, 1 passed in [\d.]+s", output.splitlines()[-1])


def test_hon_20_many_failures_are_not_run_again(tree: Tree) -> None:
    tree.tests(unlucky=UNLUCKY, broken="".join(BROKEN.replace("broken", f"broken_{n}") for n in range(20)))
    tree.stage("suite", "counted suite")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert "21 failed, 21 of 21 collected tests ran" in told
    assert "rerun     none" in told


def test_hon_20_a_run_that_ends_early_with_status_0_fails(tree: Tree) -> None:
    tree.tests(good=GOOD, leaves="import os\ndef test_leaves(): os._exit(0)\n", more=GOOD)
    tree.stage("suite", "counted suite")
    status, output = tree.run()
    assert status == 1
    assert "only 1 of 3 collected tests ran" in explanation(output)


def test_hon_20_a_run_that_fails_without_a_failed_test_is_not_run_again(tree: Tree) -> None:
    with (tree.root / "conftest.py").open("a") as hooks:
        hooks.write("def pytest_sessionfinish(session): session.exitstatus = 1\n")
    tree.tests(good=GOOD)
    tree.stage("suite", "counted suite")
    status, output = tree.run()
    told = explanation(output)
    assert status == 1
    assert "end       exit status 1" in told
    assert "run again" not in output


def test_hon_20_a_run_of_no_test_fails(tree: Tree) -> None:
    tree.tests(good=GOOD)
    tree.stage("suite", "counted suite -k nothing")
    status, output = tree.run()
    assert status == 1
    assert "end       exit status 5" in explanation(output)


def test_hon_5_a_tier_fails_for_a_skip_that_one_of_its_stages_should_have_decided(tree: Tree) -> None:
    skips = tree.root / "tests" / "house"
    skips.mkdir(parents=True)
    (skips / "skips.toml").write_text('[[skip]]\nreason = "no tool here"\ndecided_by = "programs"\n')
    tree.tests(good=GOOD, tool="import pytest\ndef test_tool(): pytest.skip('no tool here')\n")
    tree.stage("programs", "true", tier="full")
    tree.stage("suite", "counted suite")
    status, output = tree.run()
    assert status == 0, output
    assert "   1  no tool here\n      decided by the stage programs" in output
    assert "== left to later tiers\nprograms       does programs" in output
    status, output = tree.run("full")
    assert status == 1
    assert "== FAILED: skipped tests that this run should have decided\n   1  no tool here" in output
    assert tree.run("suite")[0] == 0


def test_hon_4_each_stage_has_a_script_and_each_script_a_stage() -> None:
    scripts = {path.stem for path in (ROOT / ".ci" / "stages").iterdir()}
    assert scripts == {stage.name for stage in STAGES}
    assert {need for stage in STAGES for need in stage.needs} <= scripts


def test_hon_4_full_runs_all_stages_and_the_gate_names_what_it_leaves_out() -> None:
    gate, full = plan_tier(STAGES, "gate", set()), plan_tier(STAGES, "full", None)
    assert full.whole == {stage.name for stage in STAGES if stage.tier != "release"}
    assert {line.split()[0] for line in gate.left_out} == {stage.name for stage in STAGES} - gate.whole
    assert {"lint", "build", "suite"} <= gate.whole


def test_hon_4_the_gate_runs_a_part_of_what_a_change_touches() -> None:
    def parts(*files: str) -> set[str]:
        return {each.stage.name for each in plan_tier(STAGES, "gate", files).planned if not each.is_whole}

    assert parts() == parts("README.md") == set()
    assert parts("csrc/engine/schedule/scheduler.cpp") == {"sanitizers"}
    assert parts("csrc/backend/cpu/attention/attention.cpp") == {"sanitizers", "arm"}
    assert parts("conf/ray/serve.yaml") == {"ray"}
    everything = {each.stage.name for each in plan_tier(STAGES, "gate", None).planned if not each.is_whole}
    assert everything == {stage.name for stage in STAGES if stage.part}
    for stage in STAGES:
        assert bool(stage.part) == bool(stage.touches)
        for pattern in stage.touches:
            assert list(ROOT.glob(pattern)), pattern


def test_hon_4_the_changed_files_are_those_since_a_commit(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        ran = subprocess.run(["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    git("init", "-q")
    for name in ("kept", "edited", "removed"):
        (tmp_path / name).write_text(name)
    git("add", ".")
    git("commit", "-qm", "first")
    base = git("rev-parse", "HEAD")
    (tmp_path / "edited").write_text("anew")
    git("rm", "-q", "removed")
    git("commit", "-qam", "second")
    (tmp_path / "new").touch()
    assert changed_files(tmp_path, base) == {"edited", "removed", "new"}
    assert changed_files(tmp_path, "0" * 40) is None
    assert changed_files(tmp_path, "") is None


def test_hon_20_a_stage_is_named_with_those_that_it_needs() -> None:
    assert [each.stage.name for each in plan_names(STAGES, ["lint"], with_needs=False).planned] == ["lint"]
    assert [each.stage.name for each in plan_names(STAGES, ["lint"], with_needs=True).planned] == [
        "programs",
        "environment",
        "lint",
    ]
    listed = subprocess.run([ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[:2] for line in listed.splitlines()] == [[stage.tier, stage.name] for stage in STAGES]
    wrong = subprocess.run([ROOT / ".ci" / "run", "lnt"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "no stage lnt; `.ci/run --list` names them" in wrong.stderr
