"""The soak: `python tests/soak [--minutes 60] [--json FILE]`; prints its verdict; exit status 1 if it is bad.

With `--faults 1000` it is that of several servers, under clients whose streams must not be lost: imp's own clients, or
with `--http` those of the packages `openai` and `anthropic`. No other package but imp is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path
from typing import Any

# Replaces this folder, whose modules are imported by full names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from soak.fleet import KINDS, run_chaos  # noqa: E402
from soak.soak import Plan, run_soak  # noqa: E402


def chaos(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The verdict on several servers, or on the engine processes behind a front."""
    seconds = math.inf if arguments.minutes is None else arguments.minutes * 60
    if not arguments.http:
        kinds = islice(cycle(arguments.kinds or KINDS), arguments.faults)
        n, survives = arguments.servers or 2, arguments.survive
        return run_chaos(folder, kinds, n_servers=n, seconds=seconds, survives=survives)
    from soak.http_fleet import kinds_of, mixed, run_http_chaos

    n = arguments.servers or 1
    return run_http_chaos(folder, mixed(arguments.faults, arguments.kinds or kinds_of(n)), n_servers=n, seconds=seconds)


def main() -> int:
    """Runs the soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="default: 60; with --faults: at most so many")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second (default: 4)")
    parser.add_argument("--faults", type=int, metavar="N", help="strike so many faults at several servers instead")
    parser.add_argument("--http", action="store_true", help="with --faults: deaths of engine processes behind a front")
    parser.add_argument(
        "--servers",
        type=int,
        help="with --faults (default: 2; with --http 1, which `imp serve --survive` starts again)",
    )
    parser.add_argument("--survive", action="store_true", help="with --faults: each server is `imp serve --survive`")
    parser.add_argument(
        "--kinds", nargs="+", metavar="KIND", help="with --faults: only these, such as killed or SIGKILL"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict to FILE too")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="keep the server's log there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.faults is None:
            plan = Plan((arguments.minutes or 60.0) * 60, requests_per_second=arguments.rate)
            verdict = run_soak(folder, plan)
        else:
            verdict = chaos(folder, arguments)
    text = json.dumps(verdict, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
