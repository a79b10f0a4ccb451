"""Prints errors of kernels outside the list, as JSON: `python -m gpu_check.op_errors KIND all|dry OP …`."""

from __future__ import annotations

import json
import os
import sys

from gpu_check.op_cases import OPS, Asked


def main(kind: str, extent: str, names: list[str]) -> None:
    """Prints a line for each op. Every run draws new inputs."""
    asked = Asked(kind, is_small=extent == "dry", seed=int.from_bytes(os.urandom(4)))
    for name in names:
        row: dict[str, object] = {"kernel": name}
        try:
            errors = OPS[name].errors(asked)
            row |= {"passed": all(error <= 1 for error in errors.values()), "worst": errors}
        except Exception as error:
            row |= {"passed": False, "why": f"{type(error).__name__}: {error}", "seed": asked.seed}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
