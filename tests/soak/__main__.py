"""The soak: `python tests/soak [--minutes 60] [--json FILE]`; prints its verdict; exit status 1 if it is bad.

No package but imp is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

# Replaces this folder, whose modules are imported by full names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from soak.soak import Plan, run_soak  # noqa: E402


def main() -> int:
    """Runs the soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="default: 60")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second (default: 4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict to FILE too")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="keep the server's log there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        verdict = run_soak(folder, Plan(arguments.minutes * 60, requests_per_second=arguments.rate))
    text = json.dumps(verdict, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
