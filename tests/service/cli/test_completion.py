"""Completion: each shell reports what it offers at a place in a line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.cli.completion import SHELLS
from support.command_line import clean_environment


def _bash(script: Path, words: list[str]) -> str:
    typed = " ".join(f"'{word}'" for word in ["imp", *words])
    return (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; compopt() {{ :; }}; _imp; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )


def _zsh(script: Path, words: list[str]) -> str:
    """Returns a script that prints the arguments of zsh's completion functions: its own widgets need a terminal."""
    typed = " ".join(f"'{word}'" for word in ["imp", *words])
    return (
        "_files() { print -l -- $PREFIX*(N) }; compadd() { shift; print -l -- $@ }; compdef() { : };"
        "_describe() { [[ $1 == -o ]] && shift; print -l -- ${${(P)2}%%:*} };"
        f"source {script}; words=({typed}); CURRENT={len(words) + 1}; PREFIX='{words[-1]}'; _imp | grep -- \"^$PREFIX\""
    )


def _fish(script: Path, words: list[str]) -> str:
    typed = " ".join(["imp", *words])
    return f"source {script}; complete -C '{typed}' | string replace -r '\\t.*' ''"


ASK: dict[str, Callable[[Path, list[str]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
PLAIN = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}
# pytest always finds bash; CI installs the others.
FOUND = [shell for shell in SHELLS if shell == "bash" or shutil.which(shell)]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        command = [sys.executable, "-m", "imp_service", "completion", shell]
        made = subprocess.run(command, capture_output=True, check=True, env=clean_environment(folder))
        assert made.stderr == b""
        (folder / shell).write_bytes(made.stdout)
    return folder


OFFERED = {
    ("",): {"run", "chat", "serve", "call", "completion", "help"},
    ("in",): {"inspect"},
    ("call", ""): {"generate", "chat", "health"},
    ("call", "chat", "--dr"): {"--drop-oldest"},
    ("call", "--max"): {"--max-tokens"},
    ("config", "sh"): {"show"},
    ("config", "show", "--o"): {"--origin"},
    ("serve", "mo"): {"model.gguf"},
    ("run", "-m", "mo"): {"model.gguf"},
    ("run", "--config", "mo"): {"model.gguf"},
    ("completion", "fi"): {"fish"},
    ("call", "generate", "--attempts", "4"): {"4"},
    ("run", "--seed", "mo"): set(),
    ("run", "--no-such"): set(),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("shell", FOUND)
@pytest.mark.parametrize("words", OFFERED, ids=" ".join)
def test_cmd_8_a_shell_offers_what_may_be_typed(shell: str, words: tuple[str, ...], scripts: Path, tmp_path: Path):
    (tmp_path / "model.gguf").touch()
    (tmp_path / "notes.txt").touch()
    ask = ASK[shell](scripts / shell, list(words))
    asked = subprocess.run(
        [shell, *PLAIN[shell], "-c", ask],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )
    offered = set(asked.stdout.split())
    assert asked.stderr == ""
    expected = OFFERED[words]
    assert offered >= expected
    # Every offered word begins with the typed text. If nothing fits, nothing is offered.
    assert expected or not offered
    assert all(word.startswith(words[-1]) for word in offered)


def test_cmd_8_another_shell_is_reported(call) -> None:
    status, out, err = call("completion", "tcsh")
    assert (status, out) == (64, "")
    assert "invalid choice: 'tcsh'" in err
