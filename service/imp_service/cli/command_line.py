"""Words to a command and its arguments: the parser of the command that was typed, or of all of them."""

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Sequence

from imp_service import __version__
from imp_service.cli.arguments import Parser, UsageError
from imp_service.cli.commands import COMMANDS, Command

HELP = "help"
_HELP_OPTIONS = ("-h", "--help")
EXAMPLES = ("imp serve", 'imp call "Once upon a time"', "imp help serve")


def parse(words: Sequence[str]) -> tuple[Command, Namespace]:
    """The command and its arguments. Raises UsageError; ends the process where help or the version is asked for."""
    # The options before a command take no values, so the first word that is none of them is the command.
    typed = next((word for word in words if not word.startswith("-")), None)
    if typed == HELP:
        place = words.index(HELP)
        words = [*words[:place], *words[place + 1 :], "--help"]
        typed = next((word for word in words if not word.startswith("-")), None)
    chosen = next((command for command in COMMANDS if command.name == typed), None)
    parser, of_command = build_parser({chosen.name} if chosen is not None else ())
    known, unknown = parser.parse_known_args(_with_method(list(words), chosen))
    if chosen is None:
        parser.error("no command, expected COMMAND; imp help lists them")
    if unknown:
        of_command[chosen.name].error(f"unrecognized arguments: {' '.join(unknown)}")
    return chosen, known


def build_parser(names: Collection[str]) -> tuple[Parser, dict[str, ArgumentParser]]:
    """The parser, and those of the commands; only the commands of these names have their arguments and examples."""
    parser = Parser(prog="imp", description="imp: a small server for large language models.", examples=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"imp {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    inner: dict[str, ArgumentParser] = {}
    for command in COMMANDS:
        configured = command.module() if command.name in names else None
        examples = () if configured is None else configured.EXAMPLES
        inner[command.name] = commands.add_parser(
            command.name, help=command.text, description=command.text, examples=examples
        )
        if configured is not None:
            configured.configure(inner[command.name])
    asked = commands.add_parser(HELP, help="show the options of a command, with examples", examples=("imp help run",))
    asked.add_argument("word", metavar="COMMAND", nargs="*", help="as run, or call chat")
    return parser, inner


def _with_method(words: list[str], command: Command | None) -> list[str]:
    """Where a command has methods and none was typed right after it, the first of them is meant."""
    if command is None or not command.methods:
        return words
    place = words.index(command.name) + 1
    rest = words[place:]
    if rest and rest[0] in (*command.methods, *_HELP_OPTIONS):
        return words
    stray = next((word for word in rest if word in command.methods), None)
    if stray is not None:
        place_of_methods = f"{stray}: a method comes right after imp {command.name}, before its options"
        raise UsageError("", f"{place_of_methods}; where it is none, write imp {command.name} {command.methods[0]} …")
    return [*words[:place], command.methods[0], *rest]
