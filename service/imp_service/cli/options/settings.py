"""The options of every command that takes a model: which one, how long a context, and the settings."""

import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from imp_service.cli.arguments import Once
from imp_service.cli.failure import warning_line

if TYPE_CHECKING:
    from argparse import _MutuallyExclusiveGroup

    from imp_service.config import Config
    from imp_service.config.sources import Assignment


MODEL_HELP = "a model file, or a name of [models] in imp.conf (default: model.path of imp.conf, else the built-in demo)"


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


def add_model_options(parser: ArgumentParser, *, as_word: bool = False) -> None:
    """With `as_word` the model may be given without -m."""
    add_model_option(parser, MODEL_HELP, as_word=as_word)
    add_context_option(parser)
    add_settings_options(parser)


def add_model_option(parser: "ArgumentParser | _MutuallyExclusiveGroup", text: str, *, as_word: bool = False) -> None:
    parser.add_argument("-m", "--model", metavar="PATH", action=Once, help=text)
    if as_word:
        parser.add_argument("model", metavar="MODEL", nargs="?", action=ModelWord, help="the same, without -m")


def add_context_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--context",
        metavar="N",
        action=Once,
        help="longest context in tokens, as 4K (default: the model's)",
    )


def context_assignments(arguments: Namespace) -> "list[Assignment]":
    """What --context says; it goes before --set."""
    from imp_service.config.sources import of_option

    return (
        [] if arguments.context is None else [of_option("--context", "model.overrides.max_context", arguments.context)]
    )


def load_model_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """The settings with the model and the context that the command line names."""
    return _selected(load_settings(arguments, [*overrides, *context_assignments(arguments)]), arguments)


def read_model_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """The same read again: `auto` is left as it is, and nothing is written to stderr."""
    from imp_service.config import load

    said = [*arguments.assignments, *overrides, *context_assignments(arguments)]
    return _selected(load(arguments.config, said), arguments)


def _selected(config: "Config", arguments: Namespace) -> "Config":
    from imp_service.config.select import select_model

    return config if arguments.model is None else select_model(config, arguments.model)
