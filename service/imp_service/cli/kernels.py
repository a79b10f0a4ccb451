"""imp kernels: lists the matrix kernels in order of preference, or explains which one runs and why."""

import re
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from imp_service.cli.arguments import Once, UsageError
from imp_service.cli.failure import warning_line
from imp_service.cli.options.settings import add_settings_options, load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imp_service.config import Config, Settings
    from imp_service.core.kernels import KernelConditions
    from imp_service.core.tuning_file import Preference

_WANTS = {"--isa": "expected --device cpu", "--gpu": "expected --device cuda"}
_SIZE = re.compile(r"([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")
EXAMPLES = (
    "imp kernels",
    "imp kernels --explain q4_k 4096x4096",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--explain",
        nargs=2,
        metavar=("TYPE", "NxK"),
        help="show which kernel multiplies a weight of N rows of K elements, and why not others; e.g. q8_0 4096x1024",
    )
    parser.add_argument(
        "--device", action=Once, help="whose kernels: cpu or cuda (default: the device that imp serve would use)"
    )
    parser.add_argument(
        "--isa",
        action=Once,
        help="with --explain: decide for a CPU with instruction sets such as avx2vnni+avx512bf16 (default: this one)",
    )
    parser.add_argument(
        "--gpu", action=Once, help="with --explain, on cuda: decide for an h200 or a100 (default: the one here)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings_options(parser)
    parser.set_defaults(prog=parser.prog)


def run(arguments: Namespace) -> int:
    from imp_service.core import InvalidArgument

    config = load_settings(arguments)
    device = _device(arguments, config)
    try:
        if arguments.explain is not None:
            _explain(arguments, _choice(arguments, config.settings, device))
        else:
            _list(arguments, device)
    except InvalidArgument as error:  # the names of its arguments are those of the options, without dashes
        if error.details.get("field") in ("device", "isa", "gpu"):
            error.message = f"--{error.message}"
        raise
    return 0


def _device(arguments: Namespace, config: "Config") -> str:
    """The device whose kernels to list or explain; refuses options that have no effect on it."""
    from imp_service.core.device import CPU, resolve_device

    # `auto` is resolved as at a start.
    device: str = arguments.device or str(resolve_device(config).settings.device.kind)
    for option, word, is_for in (("--isa", arguments.isa, device == CPU), ("--gpu", arguments.gpu, device != CPU)):
        if word is None:
            continue
        if arguments.explain is None:
            what = f"{option}: given without --explain, expected --explain TYPE NxK too"
            raise UsageError(arguments.prog, what)
        if not is_for:
            raise UsageError(arguments.prog, f"{option}: has no effect on {device}, {_WANTS[option]}")
    return device


def _list(arguments: Namespace, device: str) -> None:
    from imp_service.cli.output import write_table
    from imp_service.core.device import CPU
    from imp_service.core.isa import isa_name
    from imp_service.core.kernels import list_kernels

    kernels = list_kernels(device)
    if arguments.json:
        of = {"isa": isa_name()} if device == CPU else {"device": device}
        _write_json({**of, "kernels": [_plain(kernel) for kernel in kernels]})
        return
    rows = [(k.name, k.weight, k.layout, k.reduction, "yes" if k.validated else "no") for k in kernels]
    write_table(sys.stdout, ("kernel", "weights", "layout", "reduction", "validated"), rows)
    here = f"this CPU has {isa_name()}; " if device == CPU else ""
    named = "" if device == CPU else f" --device {device}"
    print(
        f"\nIn order of preference; {here}validated: has run on such hardware."
        "\nKernels of one reduction give equal bits."
        f"\nimp kernels{named} --explain q8_0 4096x1024 shows which one runs, and why.",
        file=sys.stderr,
    )


def _explain(arguments: Namespace, choice: "KernelConditions") -> None:
    from imp_service.cli.output import write_table
    from imp_service.core.device import CPU
    from imp_service.core.isa import isa_name
    from imp_service.core.kernels import explain

    dtype, size = arguments.explain
    found = _SIZE.fullmatch(size)
    if found is None:
        raise UsageError(arguments.prog, f"--explain: size {size}, expected rows x elements, such as 4096x1024")
    candidates = explain(dtype, int(found[1]), int(found[2]), choice)
    if arguments.json:
        of = {"isa": isa_name(choice.isa)} if choice.device == CPU else {"device": choice.device, "gpu": choice.gpu}
        weight = {"type": dtype, "n": int(found[1]), "k": int(found[2])}
        _write_json({**of, "weight": weight, "candidates": [_plain(candidate) for candidate in candidates]})
        return
    rows = [(c.kernel, "accepted" if c.accepted else "rejected", c.reason) for c in candidates]
    write_table(sys.stdout, ("kernel", "verdict", "reason"), rows)
    if not any(candidate.accepted for candidate in candidates):
        print(
            "\nNone runs: the kernels that fit are not validated on hardware."
            "\n--set model.overrides.unvalidated_kernels=true allows them, "
            f"and --set model.overrides.gemm.{dtype}=KERNEL one of them; imp serve takes the same settings.",
            file=sys.stderr,
        )


def _choice(arguments: Namespace, settings: "Settings", device: str) -> "KernelConditions":
    """From the settings, except what the arguments override."""
    from imp_service.core.device import CPU
    from imp_service.core.isa import isa_setting
    from imp_service.core.kernels import KernelConditions

    overrides = settings.model.overrides
    choice = KernelConditions(
        device=device,
        overrides=_overrides_of_types(overrides.gemm),
        deterministic=overrides.deterministic,
        unvalidated_kernels=overrides.unvalidated_kernels,
    )
    if device != CPU:
        return replace(choice, gpu=arguments.gpu or "auto", cublaslt=settings.device.cublaslt)
    if arguments.isa is not None:  # a tuning file is of this machine, and does not apply
        return replace(choice, isa=arguments.isa)
    return replace(choice, isa=isa_setting(settings), tuning=_tuning(settings))


def _overrides_of_types(gemm: "Mapping[str, str]") -> "Mapping[str, str]":
    """The entries of model.overrides.gemm that name a weight type; warns about patterns of tensors."""
    from imp_service.core.kernels import weight_types

    types = weight_types()
    if patterns := [pattern for pattern in gemm if pattern not in types]:
        _warn(f"model.overrides.gemm: patterns of tensors are ignored here: {', '.join(patterns)}")
    return {pattern: kernel for pattern, kernel in gemm.items() if pattern in types}


def _tuning(settings: "Settings") -> "Sequence[Preference]":
    from imp_service.core.tuning_file import tuning_here

    tuning, remark = tuning_here(settings)
    if remark:
        _warn(remark)
    return tuple(tuning)


def _warn(message: str) -> None:
    print(warning_line(message), file=sys.stderr)


def _plain(row: Any) -> dict[str, object]:
    return asdict(row)


def _write_json(document: object) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=2) + "\n")
