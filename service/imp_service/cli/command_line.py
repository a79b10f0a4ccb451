"""Parses the command line: imports and configures the typed command only."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Sequence

from imp_service.cli.arguments import Parser, UsageError, parser_of_method, refuse_foreign_options
from imp_service.cli.commands import COMMANDS, Command
from imp_service.cli.options.words import add_stray_words
from imp_service.cli.version import PrintVersion

HELP = "help"
_HELP_OPTIONS = ("-h", "--help")
EXAMPLES = ('imp run model.gguf "Why is the sky blue?"', "imp serve", 'imp call "What is imp?"', "imp help serve")


def parse(words: Sequence[str]) -> tuple[Command, Namespace]:
    """The command and its arguments. Raises UsageError. --help and --version end the process."""
    # The options before a command take no values, so the first word that is not an option is the command.
    typed = next((word for word in words if not word.startswith("-")), None)
    if typed == HELP:
        position = words.index(HELP)
        words = [*words[:position], *words[position + 1 :], "--help"]
        typed = next((word for word in words if not word.startswith("-")), None)
    chosen = next((command for command in COMMANDS if command.name == typed), None)
    parser, of_command = build_parser({chosen.name} if chosen is not None else ())
    completed = _with_method(list(words), chosen)
    if chosen is None:
        if not words:
            parser.print_help(sys.stderr)
        parser.parse_known_args(words)
        parser.error("no command, expected COMMAND")
    position = words.index(chosen.name) + 1
    own = parser_of_method(of_command[chosen.name], completed[position:])
    refuse_foreign_options(own, words)
    known, unknown = parser.parse_known_args(completed)
    known.own_words = words[position:]
    if unknown := add_stray_words(known, unknown):
        own.error(f"unrecognized arguments: {' '.join(unknown)}")
    return chosen, known


def build_parser(names: Collection[str]) -> tuple[Parser, dict[str, ArgumentParser]]:
    """The main parser, and the parser of each command. Only the commands in `names` get arguments and examples."""
    parser = Parser(prog="imp", description="imp: a small server for large language models.", examples=EXAMPLES)
    parser.add_argument("--version", action=PrintVersion, nargs=0, help="show the version and what imp was built with")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    parsers: dict[str, ArgumentParser] = {}
    for command in COMMANDS:
        configured = command.module() if command.name in names else None
        examples = () if configured is None else configured.EXAMPLES
        parsers[command.name] = commands.add_parser(
            command.name, help=command.text, description=command.text, examples=examples
        )
        if configured is not None:
            configured.configure(parsers[command.name])
    help_parser = commands.add_parser(
        HELP, help="show the options of a command, with examples", examples=("imp help run",)
    )
    help_parser.add_argument("word", metavar="COMMAND", nargs="*", help="a command such as run, or call chat")
    return parser, parsers


def _with_method(words: list[str], command: Command | None) -> list[str]:
    """Inserts the first method, the default, if the command has methods and none follows it."""
    if command is None or not command.methods:
        return words
    position = words.index(command.name) + 1
    rest = words[position:]
    if rest and rest[0] in (*command.methods, *_HELP_OPTIONS):
        return words
    stray = next((word for word in rest if word in command.methods), None)
    if stray is not None:
        prog = f"imp {command.name}"
        expected = f"{stray}: expected a method right after {prog}, before its options"
        raise UsageError(prog, f"{expected}; if it is an argument, write {prog} {command.methods[0]} …")
    return [*words[:position], command.methods[0], *rest]
