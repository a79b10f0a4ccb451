"""The commands of a checkout: benches, comparisons and tools."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS, TOOLS = ROOT / "tests", ROOT / "tools"


def commands() -> list[Path]:
    """Returns the paths that follow `python`."""
    folders = [path.parent for path in TESTS.rglob("__main__.py")]
    files = [path for path in (TESTS / "bench").glob("*.py") if '__name__ == "__main__"' in path.read_text()]
    return sorted([*folders, *files, *TOOLS.glob("*.py")])


def name_of(command: Path) -> str:
    """Returns the command's path in the checkout."""
    return command.relative_to(ROOT).as_posix()


def ran(
    python: Path, command: Path, *words: object, home: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with nothing of this process but what it needs to start."""
    variables = {"HOME": str(home), "PATH": "/usr/bin:/bin", **(environment or {})}
    return subprocess.run(
        [python, command, *map(str, words)], env=variables, cwd=home, capture_output=True, text=True, check=False
    )
