"""imp kernels: the matrix kernels in order of preference, or why each of them runs or does not."""

import re
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, UsageError, add_settings_options, load_settings

if TYPE_CHECKING:
    from imp_service.core.kernels import Choice

_SIZE = re.compile(r"([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--explain",
        nargs=2,
        metavar=("TYPE", "NxK"),
        help="which kernel multiplies a weight of N rows of K elements, and why not the others; as q8_0 4096x1024",
    )
    parser.add_argument("--device", action=Once, help="whose kernels: cpu (default) or cuda")
    parser.add_argument(
        "--isa", action=Once, help="with --explain: decide as a CPU with this instruction set would (default: this one)"
    )
    parser.add_argument(
        "--gpu", action=Once, help="with --explain --device cuda: decide for an h200 or a100 (default: the one here)"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_settings_options(parser)
    parser.set_defaults(usage=parser.format_usage)


def run(arguments: Namespace) -> int:
    arguments.device = arguments.device or "cpu"
    if arguments.explain is not None:
        _explain(arguments)
    elif arguments.isa is not None or arguments.gpu is not None:
        option = "--isa" if arguments.isa is not None else "--gpu"
        raise UsageError(arguments.usage(), f"{option}: given without --explain, expected --explain TYPE NxK beside it")
    else:
        _list(arguments)
    return 0


def _list(arguments: Namespace) -> None:
    from imp_service.cli.table import write_table
    from imp_service.core.device import CPU
    from imp_service.core.kernels import best_isa, list_kernels

    device = arguments.device
    kernels = list_kernels(device)
    if arguments.json:
        of = {"isa": best_isa()} if device == CPU else {"device": device}
        _write_json({**of, "kernels": [_plain(kernel) for kernel in kernels]})
        return
    rows = [(k.name, k.weight, k.layout, k.reduction, "yes" if k.validated else "no") for k in kernels]
    write_table(sys.stdout, ("kernel", "weights", "layout", "reduction", "validated"), rows)
    here = f"this CPU has {best_isa()}" if device == CPU else "validated: has run on such hardware"
    named = "" if device == CPU else f" --device {device}"
    print(
        f"\nIn order of preference; {here}. Kernels of one reduction give equal bits."
        f"\nimp kernels{named} --explain q8_0 4096x1024 says which one runs, and why.",
        file=sys.stderr,
    )


def _explain(arguments: Namespace) -> None:
    from imp_service.cli.table import write_table
    from imp_service.core.device import CPU
    from imp_service.core.kernels import best_isa, explain

    dtype, size = arguments.explain
    found = _SIZE.fullmatch(size)
    if found is None:
        raise UsageError(arguments.usage(), f"--explain: size {size}, expected rows x elements, as 4096x1024")
    choice = _choice(arguments)
    candidates = explain(dtype, int(found[1]), int(found[2]), choice)
    if arguments.json:
        isa = best_isa() if choice.isa == "auto" else choice.isa
        of = {"isa": isa} if choice.device == CPU else {"device": choice.device, "gpu": choice.gpu}
        weight = {"type": dtype, "n": int(found[1]), "k": int(found[2])}
        _write_json({**of, "weight": weight, "candidates": [_plain(candidate) for candidate in candidates]})
        return
    rows = [(c.kernel, "accepted" if c.accepted else "rejected", c.reason) for c in candidates]
    write_table(sys.stdout, ("kernel", "verdict", "reason"), rows)
    if not any(candidate.accepted for candidate in candidates):
        print(
            "\nNone runs: those that fit have only been emulated."
            "\n--set model.overrides.least_maturity=emulated takes them all the same, here and at a start.",
            file=sys.stderr,
        )


def _choice(arguments: Namespace) -> "Choice":
    """As the settings have it, where no argument says otherwise."""
    from imp_service.cli.failure import warning_line
    from imp_service.config import AUTO
    from imp_service.core.cublaslt import cublaslt_places
    from imp_service.core.device import CPU
    from imp_service.core.kernels import Choice
    from imp_service.core.tuning import tuning_here

    if arguments.device != CPU:
        settings = load_settings(arguments).settings
        overrides = settings.model.overrides
        return Choice(
            device=arguments.device,
            gpu=arguments.gpu or "auto",
            cublaslt=cublaslt_places(settings.device.cublaslt, arguments.device),
            deterministic=overrides.deterministic,
            least_maturity=overrides.least_maturity,
        )
    if arguments.isa is not None:
        return Choice(isa=arguments.isa)
    settings = load_settings(arguments).settings
    tuning, remark = tuning_here(settings)
    if remark:
        print(warning_line(remark), file=sys.stderr)
    isa = "auto" if settings.device.isa is AUTO else str(settings.device.isa)
    return Choice(isa=isa, tuning=tuple(tuning))


def _plain(row: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(row)  # type: ignore[call-overload,no-any-return]


def _write_json(document: object) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=2) + "\n")
