"""imp completion: prints a script that makes a shell complete imp's commands, options and files."""

import sys
from argparse import ArgumentParser, Namespace

SHELLS = ("bash", "zsh", "fish")
_ALWAYS = {
    "bash": "echo 'eval \"$(imp completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(imp completion zsh)\"' >> ~/.zshrc, after compinit",
    "fish": "imp completion fish > ~/.config/fish/completions/imp.fish",
}
EXAMPLES = ('eval "$(imp completion bash)"', "imp completion fish > ~/.config/fish/completions/imp.fish")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(arguments: Namespace) -> int:
    from imp_service.cli.command_line import build_parser
    from imp_service.cli.commands import COMMANDS
    from imp_service.cli.completion.scripts import SCRIPTS
    from imp_service.cli.completion.tree import implying_methods, places_of

    parser, _ = build_parser({command.name for command in COMMANDS})
    sys.stdout.write(SCRIPTS[arguments.shell](implying_methods(places_of(parser), COMMANDS)))
    if sys.stdout.isatty():
        print(f"\nFor every new shell: {_ALWAYS[arguments.shell]}", file=sys.stderr)
    return 0
