"""Arguments: a parser that fails the way every command fails, and the options that reach the settings."""

import sys
from argparse import Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from imp_service.cli.failure import warning_line

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.config.sources import Assignment


class UsageError(Exception):
    """A command line that is none; it has the usage to show above the error line."""

    def __init__(self, usage: str, message: str) -> None:
        self.reason = "USAGE"
        self.usage = usage
        self.message = message
        super().__init__(message)


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Keeps the lines of examples, and an option and its text on one line where they fit."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def add_argument(self, action: Action) -> None:
        super().add_argument(action)
        for below in self._iter_indented_subactions(action):  # argparse forgets that they are indented
            width = len(self._format_action_invocation(below)) + self._current_indent
            self._action_max_length = max(self._action_max_length, width)


class Parser(ArgumentParser):
    """Options may not be abbreviated: a script that works today works when another option arrives."""

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        shown = "\n".join(["examples:", *(f"  {example}" for example in examples)]) if examples else None
        super().__init__(allow_abbrev=False, epilog=shown, formatter_class=_HelpFormatter, **options)
        self.examples = tuple(examples)

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.format_usage(), message)


class Once(Action):
    """Stores a value; a second one is an error, not a silent replacement."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values)


class ModelWord(Action):
    """The model, as a word without -m: for what -m sets."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values is None:  # no such word
            return
        if namespace.model is not None:
            parser.error("MODEL: given beside --model, expected one of them")
        namespace.model = values


def add_settings_options(parser: ArgumentParser) -> None:
    """--config and --set, the same for every command that has settings."""
    parser.add_argument("--config", metavar="FILE", action=Once, help="read settings from FILE")
    add_set_option(parser, "goes before environment and file")


def add_set_option(parser: ArgumentParser, remark: str) -> None:
    """--set alone, for a command that takes nothing from this machine's own sources; its texts become `assignments`."""
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="assignments",
        help=f"set one key, as in --set scheduler.max_running=8; {remark}",
    )


def load_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """The settings of the command line, with what this machine decides decided.

    `overrides` are those of the command's own options; they go before `--set`.
    """
    return load_each(arguments, [overrides])[0]


def load_each(arguments: Namespace, overrides: "Sequence[Sequence[Assignment]]") -> "list[Config]":
    """The same under each of these overrides; what is odd about the environment is told once."""
    from imp_service.config import load
    from imp_service.config.host import resolve_threads

    warn_of_variables()
    return [resolve_threads(load(arguments.config, [*arguments.assignments, *each])) for each in overrides]


def warn_of_variables() -> None:
    """Tells variables that look as if they were settings and are not."""
    from imp_service.config.sources import near_names

    for sentence in near_names():
        print(warning_line(sentence), file=sys.stderr)
