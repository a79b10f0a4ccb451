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
from support.machine.command_line import clean_environment
from support.machine.terminal_session import terminal_session


def _bash(script: Path, words: list[str], folder: Path) -> str:
    typed = " ".join(f"'{word}'" for word in ["imp", *words])
    ask = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; compopt() {{ :; }}; _shtab_imp; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return _output(["bash", "--norc", "-c", ask], folder)


def _fish(script: Path, words: list[str], folder: Path) -> str:
    typed = " ".join(["imp", *words])
    ask = f"source {script}; complete -C '{typed}' | string replace -r '\\t.*' ''"
    return _output(["fish", "--no-config", "-c", ask], folder)


def _output(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder)}
    asked = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert asked.stderr == ""
    return asked.stdout


# Tab writes what zsh offers into a file.
_ZSH = """
autoload -Uz compinit && compinit -u -d {script}.dump
eval "$(<{script})"
compadd() {{
  local -a found
  [[ " $@ " == *" -"[OAD]" "* ]] || {{ builtin compadd -A found "$@"; print -rl -- $found >> offered }}
  builtin compadd "$@"
}}
offer() {{ _main_complete; print '<end>' }}
zle -C offer complete-word offer
bindkey '^I' offer
"""


def _zsh(script: Path, words: list[str], folder: Path) -> str:
    """It completes on a terminal only."""
    offered, settings = folder / "offered", folder / "settings"
    offered.touch()
    settings.write_text(_ZSH.format(script=script))
    with terminal_session(folder, "zsh", "-f", "-i") as session:
        session.type("source settings; print '<'ready'>'\n")
        session.read_until("<ready>")
        session.type(" ".join(["imp", *words]) + "\t")
        session.read_until("<end>")
    return offered.read_text()


ASK: dict[str, Callable[[Path, list[str], Path], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
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
    ("call", "--image", "mo"): {"model.gguf"},
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
    offered = set(ASK[shell](scripts / shell, list(words), tmp_path).split())
    expected = OFFERED[words]
    assert offered >= expected
    # Every offered word begins with the typed text. If nothing fits, nothing is offered.
    assert expected or not offered
    assert all(word.startswith(words[-1]) for word in offered)


def test_cmd_8_another_shell_is_reported(call) -> None:
    status, out, err = call("completion", "tcsh")
    assert (status, out) == (64, "")
    assert "invalid choice: 'tcsh'" in err
