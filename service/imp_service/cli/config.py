"""imp config: shows the settings in effect, checks them, or writes a commented file with every key."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from imp_service.cli.arguments import add_settings_options, load_settings
from imp_service.cli.failure import CommandError


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    show = actions.add_parser("show", help="print every key with the value in effect")
    show.add_argument("--origin", action="store_true", help="and where it came from")
    show.add_argument("--json", action="store_true", help="as one JSON object")
    add_settings_options(show)
    show.set_defaults(act=_show)
    check = actions.add_parser("check", help="read everything that would be read, and say whether it is good")
    add_settings_options(check)
    check.set_defaults(act=_check)
    init = actions.add_parser("init", help="write a commented file with every key and its default")
    init.add_argument("path", nargs="?", default="imp.conf", help="the new file, or - for stdout (default: imp.conf)")
    init.set_defaults(act=_init)


def run(arguments: Namespace) -> int:
    arguments.act(arguments)
    return 0


def _show(arguments: Namespace) -> None:
    from imp_service.config.show import as_json, as_text
    from imp_service.core.device import resolve_machine

    config, _ = resolve_machine(load_settings(arguments))
    write = as_json if arguments.json else as_text
    sys.stdout.write(write(config, with_origin=arguments.origin))


def _check(arguments: Namespace) -> None:
    config = load_settings(arguments)
    n_set = sum(entry.origin.source not in ("default", "auto") for entry in config.entries())
    sys.stdout.write(f"{config.file or 'no imp.conf'}: {n_set} key{'s' if n_set != 1 else ''} set, all good\n")


def _init(arguments: Namespace) -> None:
    from imp_service.config.render import render

    if arguments.path == "-":
        sys.stdout.write(render())
        return
    try:
        # Exclusive: a file that someone has edited is never replaced.
        with Path(arguments.path).open("x", encoding="utf-8") as file:
            file.write(render())
    except OSError as error:
        raise CommandError("CANNOT_CREATE", f"{arguments.path}: {error.strerror}") from None
    sys.stdout.write(f"{arguments.path} written\n")
