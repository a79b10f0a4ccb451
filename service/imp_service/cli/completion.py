"""imp completion: prints a script that makes a shell complete imp's commands, options and files."""

import re
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction

SHELLS = ("bash", "zsh", "fish")
_ALWAYS = {
    "bash": "echo 'eval \"$(imp completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(imp completion zsh)\"' >> ~/.zshrc, after compinit",
    "fish": "imp completion fish > ~/.config/fish/completions/imp.fish",
}
EXAMPLES = ('eval "$(imp completion bash)"', "imp completion fish > ~/.config/fish/completions/imp.fish")
# Values that are files.
_FILES = re.compile(r"(FILE|PATH|MODEL)\b.*")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(arguments: Namespace) -> int:
    import shtab

    sys.stdout.write(shtab.complete(_completed_parser(), arguments.shell))
    if sys.stdout.isatty():
        print(f"\nFor every new shell: {_ALWAYS[arguments.shell]}", file=sys.stderr)
    return 0


def _completed_parser() -> ArgumentParser:
    """The parser of all commands. Where a method may be left out, it has the options of the default method."""
    from imp_service.cli.command_line import build_parser
    from imp_service.cli.commands import COMMANDS

    parser, of_command = build_parser({command.name for command in COMMANDS})
    _complete_files(parser)
    for command in COMMANDS:
        if command.methods:
            above = of_command[command.name]
            default = _below(above)[command.methods[0]]
            above._actions += [each for each in default._actions if each.option_strings and each.dest != "help"]
    return parser


def _complete_files(parser: ArgumentParser) -> None:
    """Marks the arguments and options that take files, as shtab wants it."""
    from shtab import FILE

    for action in parser._actions:
        if isinstance(action.metavar, str) and _FILES.fullmatch(action.metavar):
            action.complete = FILE  # type: ignore[attr-defined]
    for below in _below(parser).values():
        _complete_files(below)


def _below(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """The parsers of the subcommands."""
    return next((action.choices for action in parser._actions if isinstance(action, _SubParsersAction)), {})
