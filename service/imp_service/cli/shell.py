"""The shell around the commands: finds the one that was typed, runs it, and turns whatever it raises into one line."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from imp_service import __version__
from imp_service.cli.arguments import Parser, UsageError
from imp_service.cli.commands import COMMANDS, CommandModule
from imp_service.cli.failure import INTERRUPTED, describe, report


def _open_closed_streams() -> None:
    """A stream that was closed before the start is None: from and to nowhere instead."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `imp` with these arguments, those of the process by default; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _open_closed_streams()
    try:
        status = _run(words)
        sys.stdout.flush()
    except UsageError as error:
        sys.stderr.write(error.usage)
        return report(error.reason, error.message)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has what it wanted. The interpreter flushes stdout once more at its end: to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m imp_service: whoever looks for our bug wants all of it
            raise
        return report(*describe(error), getattr(error, "code", None))
    return status


def _run(words: list[str]) -> int:
    parser = Parser(prog="imp", description="imp: a small server for large language models.")
    parser.add_argument("--version", action="version", version=f"imp {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    # The options before a command take no values, so the first word that is none of them is the command.
    typed = next((word for word in words if not word.startswith("-")), None)
    words = _with_method(words, typed)
    chosen: tuple[ArgumentParser, CommandModule] | None = None
    for command in COMMANDS:
        inner = commands.add_parser(command.name, help=command.text, description=command.text)
        if command.name == typed:
            chosen = inner, command.module()
            chosen[1].configure(inner)
    known, unknown = parser.parse_known_args(words)
    if chosen is None:
        raise AssertionError("argparse accepts only the commands of the list")
    if unknown:
        chosen[0].error(f"unrecognized arguments: {' '.join(unknown)}")
    return chosen[1].run(known)


def _with_method(words: list[str], typed: str | None) -> list[str]:
    """Where a command has methods and none was typed right after it, the first of them is meant."""
    methods = next((command.methods for command in COMMANDS if command.name == typed), ())
    if typed is None or not methods:
        return words
    place = words.index(typed) + 1
    rest = words[place:]
    if rest and rest[0] in (*methods, "-h", "--help"):
        return words
    stray = next((word for word in rest if word in methods), None)
    if stray is not None:
        place_of_methods = f"{stray}: a method comes right after imp {typed}, before its options"
        raise UsageError("", f"{place_of_methods}; where it is none, write imp {typed} {methods[0]} …")
    return [*words[:place], methods[0], *rest]
