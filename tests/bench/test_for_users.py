"""Benches, comparisons and tools run from a checkout with a released imp, which has no extension for tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from imp_service.models import demo_draft_model_path, demo_model_path
from support.deploy.offered_commands import COMPARE, TOOLS, commands, ran, words_of
from support.deploy.release_environment import make_environment
from support.run.needed import MUTANTS, TESTING


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment of imp without extras."""
    return make_environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def with_peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment of imp with the extra `peers`, of which the tests need no package but gguf."""
    return make_environment(tmp_path_factory.mktemp("peers"), "peers")


def test_pkg_5_the_environments_have_what_a_release_has(bare: Path, with_peers: Path, tmp_path: Path) -> None:
    shows = tmp_path / "shows.py"
    shows.write_text(
        "import importlib.util, json, sys\n"
        "print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is not None]))\n"
    )
    asked = ("imp_service._core", "grpc", "google.protobuf", "gguf", "imp_service._testing", "pytest", "openai", "yaml",
             "hypothesis", "pydantic", "grpc_tools")  # fmt: skip
    every, own = (json.loads(ran(python, shows, *asked, home=tmp_path).stdout) for python in (with_peers, bare))
    assert own == ["imp_service._core", "grpc", "google.protobuf", "yaml"]
    # Peers that are installed here may bring pydantic.
    assert set(every) - {"pydantic"} == {*own, "gguf"}
    assert json.loads(ran(Path(sys.executable), shows, *asked[-2:], home=tmp_path).stdout) == list(asked[-2:])


@pytest.mark.parametrize("command", commands())
def test_pkg_5_help_needs_no_package_of_the_tests(command: str, bare: Path, tmp_path: Path) -> None:
    found = ran(bare, *words_of(command), "--help", home=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("usage: ")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("tests/parity", f"imp_service._testing is not installed: {TESTING}"),
        ("tests/mutants", f"imp_service._testing is not installed: {MUTANTS}"),
        ("tools/compare front_end --only tokens", f"imp_service._testing is not installed: {TESTING}"),
        ("tools/generate_protos.py --check", "grpc_tools is not installed: pip install '.[test]'"),
        ("tools/generate_sync.py --check", "ruff is not installed: pip install '.[lint]'"),
        ("tools/generate_stubs.py --check", "pybind11_stubgen is not installed: pip install '.[lint]'"),
    ],
)
def test_pkg_5_what_is_missing_is_named_in_one_line(command: str, line: str, with_peers: Path, tmp_path: Path) -> None:
    found = ran(with_peers, *words_of(command), home=tmp_path)
    assert found.returncode != 0
    assert found.stderr.endswith(f"{line}\n") and found.stderr.count("\n") == 1


def test_pkg_5_a_model_is_written_and_compared(with_peers: Path, tmp_path: Path) -> None:
    model, report = tmp_path / "tiny.gguf", tmp_path / "report.json"
    made = ran(with_peers, TOOLS / "make_model.py", "tiny", "f32", "-o", model, home=tmp_path)
    assert (made.stderr, made.stdout) == ("", f"{model}\n")
    sizes = ["--threads", "1", "--prefill", "16", "--depths", "0", "--batches", "1", "--decode", "4", "--reps", "1"]
    words = ["--engines", "imp", "--quick", *sizes, "--json", report]
    compared = ran(with_peers, COMPARE, "peers", model, *words, home=tmp_path)
    assert compared.returncode == 0, compared.stderr
    found = json.loads(report.read_text())
    assert [(case["kind"], case.get("tokens"), list(case["engines"])) for case in found["cases"]] == [
        ("start", None, ["imp"]), ("prefill", 16, ["imp"]), ("decode", 4, ["imp"]),
    ]  # fmt: skip


def test_pkg_5_spc_30_guesses_are_replaced(bare: Path, tmp_path: Path) -> None:
    """Whatever the draft model guesses, they are right at the given rate."""
    replay = tmp_path / "answers.jsonl"
    replay.write_text(json.dumps({"kind": "text", "prompt": list(range(300, 340)), "answer": list(range(400, 480))}))
    words = [demo_model_path(), "--draft", demo_draft_model_path(), "--replay", replay, "--rates", "0,1,0.5"]
    options = ["--tokens", "80", "--threads", "1", "--always"]
    found = ran(bare, COMPARE, "guesses", *words, *options, home=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    answers = {line["rate"]: line for line in map(json.loads, found.stdout.splitlines()[::2])}
    assert answers[0]["accepted"] == 0 < answers[0]["drafted"]
    assert answers[1]["accepted"] == answers[1]["drafted"] > 40
    assert 0 < answers[0.5]["accepted"] < answers[0.5]["drafted"]
    for line in answers.values():
        assert line["gain"] == pytest.approx(line["seconds_without"] / line["seconds_with"])
    assert [line.partition(":")[0] for line in found.stdout.splitlines()[1::2]] == ["rate 0.0", "rate 1.0", "rate 0.5"]
