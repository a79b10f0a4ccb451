"""Compares every family of models with transformers and llama.cpp, and prints a table.

    python tests/parity                # all families; exit status 1 if one differs, or a control is not detected
    python tests/parity granite phi3

For each family, the table has the greatest error of float32 logits at 100 positions, relative to their root mean
square, from GGUF and from a directory. It has the bound that follows from the roundings. For files that llama.cpp
quantized to Q8_0 and Q4_K_M, it compares imp's logits at 256 positions with float64, and llama.cpp's as well ("peer"):
the relative error, the percentage of positions with the same most probable token ("top-1"), and the median of the
Kullback-Leibler divergences in nats ("KL"). Only the error decides the verdict. As negative controls, it lists the
facts that changed the logits when they were turned off in transformers, and says whether a matrix with moved rows was
detected in the quantized files. The weights are random. Exit status 2: a package is not installed, or a name is
unknown. Needs imp with the extension for its tests, which calls the forward pass, and the extras `test` and `parity`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.run.needed import EXTENSION, PARITY, TESTING, absent, missing_of

if TYPE_CHECKING:
    from support.models.family_cases import Comparison, FamilyCase

# What it needs -> how to install it.
MODULES = {"gguf": TESTING, EXTENSION: TESTING, "transformers": PARITY, "llama_cpp": PARITY}
QUANTIZED = ("q8_0", "q4_k_m")
OF_QUANTIZED = "  ".join(f"{name:>8} {'peer':>8} {'top-1':>6} {'peer':>6} {'KL':>8} {'peer':>8}" for name in QUANTIZED)
HEADS = (f"{'family':<26} {'GGUF':<14} {'gguf':>9} {'directory':>9} {'bound':>9}  {'verdict':<8} "
         f"{OF_QUANTIZED}  controls")  # fmt: skip


@cache
def cases() -> dict[str, FamilyCase]:
    """Returns the families by name."""
    from support.models.family_cases import CASES
    from support.models.linear_attention_cases import LINEAR_CASES

    return CASES | LINEAR_CASES


@cache
def quantized(family: str) -> tuple[str, list[str]]:
    """Returns the columns of quantized files, and what is wrong. Cases of transformers share families of llama.cpp."""
    from support.models.llama_cpp_cases import compare_errors

    columns, faults = [], []
    for file_type in QUANTIZED:
        with tempfile.TemporaryDirectory() as folder:
            found = compare_errors(family, file_type, Path(folder))
        both = (found.imp, found.llama_cpp)
        errors, divergences = (f"{each.error:8.1e}" for each in both), (f"{each.divergence:8.1e}" for each in both)
        columns.append(" ".join([*errors, *(f"{each.top_1:6.1%}" for each in both), *divergences]))
        if not found.is_near:
            faults.append(f"{file_type} ABOVE LLAMA.CPP")
        if not found.control_is_caught:
            faults.append(f"NOT DETECTED: moved rows in {file_type}")
    return "  ".join(columns), faults


def peer_family(name: str) -> str:
    """Returns the model of llama.cpp that is like this case of transformers."""
    case = cases()[name]
    if case.architecture == "gemma4" and "expert_count" not in case.keys:
        return "gemma4_dense"
    return "mixtral" if name == "mixtral" else case.architecture


def line(name: str, found: Comparison, columns: str, faults: list[str]) -> str:
    verdict = "equal" if found.is_equal else "DIFFERS"
    caught = ", ".join(
        [
            *(fact for fact in found.controls if fact not in found.uncaught),
            *([] if any("moved rows" in fault for fault in faults) else ["moved rows"]),
        ]
    )
    missed = "".join(f", {fault}" for fault in [*(f"NOT DETECTED: {fact}" for fact in found.uncaught), *faults])
    errors = f"{found.from_gguf:9.1e} {found.from_directory:9.1e} {found.bound:9.1e}"
    return f"{name:<26} {cases()[name].architecture:<14} {errors}  {verdict:<8} {columns}  {caught}{missed}"


def refused(why: str) -> int:
    """Prints why nothing is compared, and returns the exit status."""
    print(f"python tests/parity: {why}", file=sys.stderr)
    return 2


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    asked = parser.parse_args().families
    if found := missing_of(list(MODULES)):
        return refused(absent(found[0], MODULES[found[0]]))
    names = asked or list(cases())
    if unknown := [name for name in names if name not in cases()]:
        return refused(f"no family {unknown[0]}; there are {', '.join(cases())}")
    from support.models.family_cases import compare
    from support.oracles import llama_cpp_peer

    llama_cpp_peer.start()
    print(HEADS)
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(cases()[name], Path(folder))
        columns, faults = quantized(peer_family(name))
        print(line(name, found, columns, faults), flush=True)
        failed += not found.is_equal or bool(found.uncaught) or bool(faults)
    print(f"{len(names) - failed} of {len(names)} families equal transformers and round like llama.cpp")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
