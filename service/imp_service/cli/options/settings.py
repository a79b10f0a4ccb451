"""The options of every command that takes a model: which one, how long a context, and the settings."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.arguments import ModelWord, Once, add_settings_options, load_settings

if TYPE_CHECKING:
    from argparse import _MutuallyExclusiveGroup

    from imp_service.config import Config
    from imp_service.config.sources import Assignment


MODEL_HELP = "a model file, or a name of [models] in imp.conf (default: model.path of imp.conf, else the built-in demo)"


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
