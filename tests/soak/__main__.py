"""The soak: `python tests/soak [--minutes 60] [--json FILE]`; prints its verdict; exit status 1 if it is bad.

With `--faults 1000` it is that of several servers, under clients whose streams must not be lost.

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

from soak.fleet import KINDS, run_chaos  # noqa: E402
from soak.soak import Plan, run_soak  # noqa: E402


def main() -> int:
    """Runs the soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="default: 60")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second (default: 4)")
    parser.add_argument("--faults", type=int, metavar="N", help="strike so many faults at several servers instead")
    parser.add_argument("--servers", type=int, default=2, help="with --faults (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict to FILE too")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="keep the server's log there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.faults is None:
            verdict = run_soak(folder, Plan(arguments.minutes * 60, requests_per_second=arguments.rate))
        else:
            kinds = [KINDS[i % len(KINDS)] for i in range(arguments.faults)]
            verdict = run_chaos(folder, kinds, n_servers=arguments.servers)
    text = json.dumps(verdict, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
