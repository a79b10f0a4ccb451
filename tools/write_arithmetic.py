"""Writes tests/data/arithmetic.json: the bits that tests/determinism/test_arithmetic_revision.py compares.

Run it after a raise of kArithmeticRevision, and where a case is new or reads something else. It writes nothing if bits
changed without a raise, or if the number was raised and no bit changed.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def main() -> int:
    """Writes the results, unless the number says otherwise."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if find_spec("gguf") is None:
        raise SystemExit("gguf is not installed: pip install '.[test]'")
    from imp_service.tables import ARITHMETIC_REVISION
    from support.models.arithmetic_cases import PATH, Stored, WrongRevision, read, renewed, results, written

    found = results()
    stored = read() if PATH.exists() else Stored(ARITHMETIC_REVISION, found, {})
    try:
        new = renewed(found, stored, ARITHMETIC_REVISION)
    except WrongRevision as error:
        print(error, file=sys.stderr)
        return 1
    PATH.write_text(written(new), encoding="utf-8")
    print(f"wrote {PATH.name}: {len(found)} cases of revision {new.revision}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
