"""imp kernels: the matrix kernels in order of preference, or why each of them runs or does not."""

import re
import sys
from argparse import ArgumentParser, Namespace

from imp_service.cli.arguments import Once, UsageError, add_settings_options, load_settings

_SIZE = re.compile(r"([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--explain",
        nargs=2,
        metavar=("TYPE", "NxK"),
        help="which kernel multiplies a weight of N rows of K elements, and why not the others; as q8_0 4096x1024",
    )
    parser.add_argument(
        "--isa", action=Once, help="with --explain: decide as a CPU with this instruction set would (default: this one)"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_settings_options(parser)
    parser.set_defaults(usage=parser.format_usage)


def run(arguments: Namespace) -> int:
    if arguments.explain is not None:
        _explain(arguments)
    elif arguments.isa is not None:
        raise UsageError(arguments.usage(), "--isa: given without --explain, expected --explain TYPE NxK beside it")
    else:
        _list(arguments)
    return 0


def _list(arguments: Namespace) -> None:
    from imp_service.cli.table import write_table
    from imp_service.core.kernels import best_isa, list_kernels

    kernels = list_kernels()
    if arguments.json:
        _write_json({"isa": best_isa(), "kernels": [_plain(kernel) for kernel in kernels]})
        return
    rows = [(k.name, k.weight, k.layout, k.reduction, "yes" if k.validated else "no") for k in kernels]
    write_table(sys.stdout, ("kernel", "weights", "layout", "reduction", "validated"), rows)
    print(
        f"\nIn order of preference; this CPU has {best_isa()}. Kernels of one reduction give equal bits."
        "\nimp kernels --explain q8_0 4096x1024 says which one runs, and why.",
        file=sys.stderr,
    )


def _explain(arguments: Namespace) -> None:
    from imp_service.cli.failure import warning_line
    from imp_service.cli.table import write_table
    from imp_service.config import AUTO
    from imp_service.core.kernels import best_isa, explain
    from imp_service.core.tuning import Preference, tuning_here

    dtype, size = arguments.explain
    found = _SIZE.fullmatch(size)
    if found is None:
        raise UsageError(arguments.usage(), f"--explain: size {size}, expected rows x elements, as 4096x1024")
    isa = arguments.isa
    tuning: list[Preference] = []
    if isa is None:
        settings = load_settings(arguments).settings
        isa = "auto" if settings.device.isa is AUTO else str(settings.device.isa)
        tuning, remark = tuning_here(settings)
        if remark:
            print(warning_line(remark), file=sys.stderr)
    candidates = explain(dtype, int(found[1]), int(found[2]), isa, tuning)
    if arguments.json:
        isa = best_isa() if isa == "auto" else isa
        weight = {"type": dtype, "n": int(found[1]), "k": int(found[2])}
        _write_json({"isa": isa, "weight": weight, "candidates": [_plain(candidate) for candidate in candidates]})
        return
    rows = [(c.kernel, "accepted" if c.accepted else "rejected", c.reason) for c in candidates]
    write_table(sys.stdout, ("kernel", "verdict", "reason"), rows)


def _plain(row: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(row)  # type: ignore[call-overload,no-any-return]


def _write_json(document: object) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=2) + "\n")
