"""Compares every family of models with transformers, and prints a table.

    python tests/parity                # all families; exit status 1 if one differs, or a control is not detected
    python tests/parity granite phi3

For each family, the table has the greatest error of float32 logits at 100 positions, relative to their root mean
square, from GGUF and from a directory. It has the bound that follows from the roundings. As a negative control, it
lists the facts that changed the logits when they were turned off in transformers. The weights are random. Exit
status 2: transformers is not installed, or a name is unknown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.family_cases import CASES as OTHER_CASES
from support.family_cases import Comparison, compare
from support.linear_attention_cases import LINEAR_CASES

CASES = OTHER_CASES | LINEAR_CASES


def line(name: str, found: Comparison) -> str:
    verdict = "equal" if found.is_equal else "DIFFERS"
    caught = ", ".join(fact for fact in found.controls if fact not in found.uncaught)
    missed = "".join(f", NOT DETECTED: {fact}" for fact in found.uncaught)
    errors = f"{found.from_gguf:9.1e} {found.from_directory:9.1e} {found.bound:9.1e}"
    return f"{name:<26} {CASES[name].architecture:<14} {errors}  {verdict:<8} {caught}{missed}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/parity", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    names = parser.parse_args().families or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown or find_spec("transformers") is None:
        problem = (
            f"no family {unknown[0]}; there are {', '.join(CASES)}" if unknown else "transformers is not installed"
        )
        print(f"python tests/parity: {problem}", file=sys.stderr)
        return 2
    print(f"{'family':<26} {'GGUF':<14} {'gguf':>9} {'directory':>9} {'bound':>9}  {'verdict':<8} facts turned off")
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(CASES[name], Path(folder))
        print(line(name, found), flush=True)
        failed += not found.is_equal or bool(found.uncaught)
    print(f"{len(names) - failed} of {len(names)} families equal transformers")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
