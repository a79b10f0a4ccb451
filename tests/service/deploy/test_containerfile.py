"""conf/Containerfile: its stages, copies and start command, read as statements. tests/image builds it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imp_service.cli.commands import COMMANDS
from imp_service.client.read_address import DEFAULT_PORT
from support.machine.command_line import clean_environment
from support.servers.server_process import server_process

ROOT = Path(__file__).resolve().parents[3]
CONTAINERFILE = ROOT / "conf" / "Containerfile"
INSTRUCTIONS = {"FROM", "ARG", "RUN", "COPY", "LABEL", "WORKDIR", "ENV", "USER"}
INSTRUCTIONS |= {"EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
HEALTH_OPTIONS = {"interval", "timeout", "start-period", "retries"}


@dataclass
class Stage:
    """One FROM, and the instructions after it."""

    image: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [arguments for name, arguments in self.instructions if name == instruction]


def statements(text: str) -> list[tuple[str, str]]:
    """Returns instructions with their arguments, without comments, and with continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]
    assert all(len(statement) == 2 for statement in found)
    return [(name, arguments) for name, arguments in found]


def stages(text: str) -> tuple[dict[str, str], list[Stage]]:
    """Returns the arguments before the first stage, and the stages."""
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for name, rest in statements(text):
        assert name in INSTRUCTIONS, name
        if name == "FROM":
            image, _, stage = rest.partition(" AS ")
            found.append(Stage(image, stage))
        elif found:
            found[-1].instructions.append((name, rest))
        else:
            assert name == "ARG"
            argument, _, default = rest.partition("=")
            arguments[argument] = default
    return arguments, found


@pytest.fixture
def parts() -> tuple[dict[str, str], list[Stage]]:
    return stages(CONTAINERFILE.read_text())


def test_two_stages_of_one_small_base(parts):
    arguments, (build, final) = parts
    assert build.image == final.image == "docker.io/library/python:${PYTHON}-slim"
    (lowest,) = re.findall(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert int(arguments["PYTHON"].removeprefix("3.")) >= int(lowest)
    assert (build.name, final.name) == ("build", "")


def test_the_final_stage_installs_nothing_and_takes_only_what_was_installed(parts):
    _, (build, final) = parts
    assert final.all("RUN") == []
    assert final.all("COPY") == ["--from=build /opt/imp /opt/imp"]
    assert "/opt/imp/bin:$PATH" in " ".join(final.all("ENV"))
    compilers = [run for run in build.all("RUN") if "g++" in run]
    assert len(compilers) == 1
    # No URL is fetched: external files come only from apt and pip.
    assert not re.search(r"https?://|\bcurl\b|\bwget\b|^ADD\b", CONTAINERFILE.read_text(), re.MULTILINE)


def test_the_build_copies_exactly_the_files_it_needs(parts):
    _, (build, _) = parts
    copied = {Path(word).name for arguments in build.all("COPY") for word in arguments.split()[:-1]}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    pyproject = (ROOT / "pyproject.toml").read_text()
    named = {"pyproject.toml", "CMakeLists.txt", *re.findall(r'"(README\.md|LICENSE|NOTICE)"', pyproject)}
    installed = set(re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(\w+)", (ROOT / "csrc" / "CMakeLists.txt").read_text()))
    package = re.findall(r'wheel\.packages = \["(\w+)/', pyproject)
    assert copied == named | installed | {"csrc", *package}


def test_the_context_holds_what_is_copied_and_no_build_products(parts):
    _, (build, _) = parts
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    assert rules[0] == "*"
    copied = {word for arguments in build.all("COPY") for word in arguments.split()[:-1]}
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    # The build recreates its files inside the package.
    ignored = re.findall(r"^/(service/\S+?)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert {"**/*.so", *ignored} <= set(rules)


def test_it_runs_as_nobody_and_is_stopped_by_sigterm(parts):
    _, (_, final) = parts
    assert final.all("USER") == ["65532:65532"]
    assert final.all("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(*final.all("ENTRYPOINT")) == ["imp"]
    command = json.loads(*final.all("CMD"))
    assert command == ["serve", "--listen", "0.0.0.0:50051", "--http", "0.0.0.0:8000"]
    assert command[0] in {known.name for known in COMMANDS}
    ports = [word.rpartition(":")[2] for word in command if ":" in word]
    assert final.all("EXPOSE") == [" ".join(ports)]


def test_its_health_is_that_of_the_server_that_it_starts(parts, tmp_path: Path):
    """The command of HEALTHCHECK runs against a server on the port of CMD, and without a server."""
    _, (_, final) = parts
    options, _, command = final.all("HEALTHCHECK")[0].partition("CMD ")
    words = json.loads(command)
    assert words[0] == "imp" and set(re.findall(r"--([\w-]+)=", options)) <= HEALTH_OPTIONS
    check = [sys.executable, "-m", "imp_service", *words[1:]]
    environment = clean_environment(tmp_path)
    with server_process(tmp_path) as server:
        target = {**environment, "IMP_TARGET": server.address}
        assert subprocess.run(check, env=target, capture_output=True, check=False).returncode == 0
    assert subprocess.run(check, env=target, capture_output=True, check=False).returncode != 0
    # Without IMP_TARGET it calls the port of CMD.
    assert json.loads(*final.all("CMD"))[2] == f"0.0.0.0:{DEFAULT_PORT}"


def test_the_commit_reaches_the_package_and_the_label(parts, tmp_path: Path):
    _, (build, final) = parts
    (script,) = [run for run in build.all("RUN") if "commit.txt" in run]
    (tmp_path / "csrc").mkdir()
    commit = tmp_path / "csrc" / "commit.txt"
    for given, expected in (("", "$Format:%H$\n"), ("a" * 40, "a" * 40 + "\n")):
        commit.write_bytes((ROOT / "csrc" / "commit.txt").read_bytes())
        subprocess.run(["sh", "-c", script], env={"REVISION": given}, cwd=tmp_path, check=True)
        assert commit.read_text() == expected
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', *final.all("LABEL")))
    assert labels.keys() == {"title", "description", "version", "revision", "licenses"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (labels["revision"], labels["licenses"]) == ("$REVISION", project["license"])
    assert "REVISION=" in build.all("ARG") and "REVISION=" in final.all("ARG")


def test_the_reader_of_statements_joins_lines_and_refuses_what_it_does_not_know():
    text = "ARG A=1\n# note\nFROM x AS y\nRUN a \\\n && b\nFROM z\nUSER 1\n"
    arguments, (first, second) = stages(text)
    assert (arguments, first.all("RUN"), second.all("USER")) == ({"A": "1"}, ["a && b"], ["1"])
    with pytest.raises(AssertionError, match="ADD"):
        stages("FROM x\nADD http://a.example/b /b\n")


@pytest.mark.parametrize(("extras", "suffix"), [("", ""), ("otel", "[otel]"), ("otel,ray", "[otel,ray]")])
def test_extras_are_built_and_installed_where_they_are_asked_for(parts, extras: str, suffix: str):
    """A shell expands the words, as in the build."""
    _, (build, _) = parts
    assert "EXTRAS=" in build.all("ARG")
    said = [words for run in build.all("RUN") for words in re.findall(r'"[^"]*\$\{EXTRAS[^"]*"', run)]
    script = f"printf '%s\\n' {' '.join(said)}"
    ran = subprocess.run(["sh", "-c", script], env={"EXTRAS": extras}, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [f".{suffix}", f"imp-service{suffix}"]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(filter(None, extras.split(","))) <= declared.keys()
