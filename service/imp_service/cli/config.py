"""imp config: shows the settings in effect, checks them, or writes a commented file with every key."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError, describe, report, warning_line
from imp_service.cli.options.settings import add_settings_options, load_settings, warn_of_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imp_service.config.read_settings import SettingsAndErrors
    from imp_service.core.settings_faults import Fault

EXAMPLES = (
    "imp config init",
    "imp config show --origin --set scheduler.max_running=8",
)


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    what = "print every key with the value in effect"
    examples: tuple[str, ...] = ("imp config show --origin", "imp config show --json --set kv.dtype=f32")
    show = actions.add_parser("show", help=what, description=what, examples=examples)
    show.add_argument("--origin", action="store_true", help="print the origin of each value too")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings_options(show)
    show.set_defaults(run_method=_show)
    examples = ("imp config check", "imp config check --config imp.conf --set model.path=model.gguf")
    what = "check all keys and the files that they name; if all keys are valid, also the device and that models fit"
    check = actions.add_parser("check", help=what, description=what, examples=examples)
    add_settings_options(check)
    check.set_defaults(run_method=_check)
    what, examples = "write a commented file with every key and its default", ("imp config init", "imp config init -")
    init = actions.add_parser("init", help=what, description=what, examples=examples)
    init.add_argument(
        "path", metavar="FILE", nargs="?", default="imp.conf", help="the new file, or - for stdout (default: imp.conf)"
    )
    init.set_defaults(run_method=_init)


def run(arguments: Namespace) -> int:
    status: int = arguments.run_method(arguments)
    return status


def _show(arguments: Namespace) -> int:
    from imp_service.config.render import as_json, as_text
    from imp_service.core.device import resolve_machine

    config, _ = resolve_machine(load_settings(arguments))
    write = as_json if arguments.json else as_text
    sys.stdout.write(write(config, with_origin=arguments.origin))
    return 0


def _check(arguments: Namespace) -> int:
    """Prints every error; the exit status is that of the first."""
    from imp_service.config.read_settings import read_with_errors

    warn_of_variables()
    reading = read_with_errors(arguments.config, arguments.assignments)
    config = reading.config
    faults = [*reading.errors, *_further_faults(reading)]
    # An error that several models share is printed once.
    statuses = [report(*line) for line in dict.fromkeys(describe(fault) for fault in faults)]
    if not reading.is_whole:
        _warn(f"stopped after {len(reading.errors)} errors: the rest was not read")
    elif reading.errors:
        _warn("not checked: the device, and whether models fit in its memory")
    if config is None or statuses:
        return statuses[0]
    n_set = sum(entry.origin.source not in ("default", "auto") for entry in config.entries())
    keys = f"{n_set} key{'s' if n_set != 1 else ''} set"
    sys.stdout.write(f"{config.file or 'no imp.conf'}: {keys}, all good; weights were not read\n")
    return 0


def _further_faults(reading: "SettingsAndErrors") -> "Iterator[Fault]":
    """Errors beyond single keys: of files, the device and the models. If a key is invalid, checks only the files."""
    from imp_service.config.machine import resolve_threads
    from imp_service.core.settings_faults import opening_faults, setting_faults
    from imp_service.serving.security.secret_faults import secret_faults

    if reading.config is None:
        return
    yield from secret_faults(reading.config)
    look = opening_faults if reading.errors else setting_faults
    yield from look(resolve_threads(reading.config))


def _warn(message: str) -> None:
    print(warning_line(message), file=sys.stderr)


def _init(arguments: Namespace) -> int:
    from imp_service.config.render import render

    if arguments.path == "-":
        sys.stdout.write(render())
        return 0
    try:
        # Exclusive: a file that someone has edited is never replaced.
        with Path(arguments.path).open("x", encoding="utf-8") as file:
            file.write(render())
    except OSError as error:
        raise CommandError("CANNOT_CREATE", f"{arguments.path}: {error.strerror}") from None
    sys.stdout.write(f"{arguments.path} written\n")
    return 0
