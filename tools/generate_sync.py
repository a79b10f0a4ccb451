"""Writes the client's modules for threads from those for asyncio; with --check, reports whether they are up to date."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "service" / "imp_service" / "client" / "model"
# From file to file.
PAIRS = {"async_session.py": "session.py", "async_client.py": "blocking_client.py"}
HEADER = "# Generated from {source} by tools/generate_sync.py; do not edit.\n"

# A pattern of the asynchronous text, and what replaces it.
REPLACEMENTS = (
    (r"(?<!`)\bAsyncClient\b", "BlockingClient"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"(?<=\.)async_(?=connection|session)", ""),
    (r"(?<=\.remote_)async_(?=generation)", ""),
    (r"(?<=\.)async_(?=joined_replies)", ""),
    (r"(?<=__)a(?=(enter|exit)__)", ""),
    (r"\basync (?=def|with)", ""),
    (r"\bawait ", ""),
    (r"\basyncio\b", "time"),
    # Words of docstrings.
    (r"\ban (?=`with)", "a "),
    (r"\btasks of one event loop\b", "programs that wait in threads"),
    (r"\bone task at a time\b", "one thread at a time"),
    (r"\bconnect_async\b", "connect"),
    # What is true of asyncio only.
    (r": its methods that wait are coroutines", ""),
    (r"\n    It belongs to the event loop .*\n", ""),
)


def generate() -> dict[str, str]:
    """Returns a map from file name to text."""
    return {target: _synchronous(FOLDER / source) for source, target in PAIRS.items()}


def _synchronous(source: Path) -> str:
    text = source.read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    for command in ("check --quiet --fix --select=I", "format"):
        words = [sys.executable, "-m", "ruff", *command.split(), f"--stdin-filename={source}", "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    return HEADER.format(source=source.name) + text


def main() -> int:
    """Writes or checks the modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    is_check = parser.parse_args().check
    if find_spec("ruff") is None:
        raise SystemExit("ruff is not installed: pip install '.[lint]'")
    wanted = generate()
    if not is_check:
        for name, text in wanted.items():
            (FOLDER / name).write_text(text)
        return 0
    stale = [name for name, text in wanted.items() if (FOLDER / name).read_text() != text]
    for name in stale:
        print(f"{name} is not what its source gives: run tools/generate_sync.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
