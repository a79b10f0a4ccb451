"""Options that choose the settings and the model: --config, --set, --model and --context."""

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from imp_service.cli.arguments import Once
from imp_service.cli.failure import warning_line

if TYPE_CHECKING:
    from argparse import _MutuallyExclusiveGroup

    from imp_service.cli.hub.get import HubModel
    from imp_service.config import Config
    from imp_service.config.sources import Assignment


MODEL_HELP = (
    "a model file, the name of a downloaded model, hf:OWNER/NAME:TYPE, which imp downloads, or a name of [models] "
    "in imp.conf (default: model.path of imp.conf, else the built-in demo)"
)


class ModelWord(Action):
    """The model as a positional argument, in place of -m."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values is None:  # not given
            return
        if namespace.model is not None:
            parser.error("MODEL: given together with --model, expected one of them")
        namespace.model = values


def add_settings_options(parser: ArgumentParser) -> None:
    """--config and --set, the same for every command that has settings."""
    parser.add_argument("--config", metavar="FILE", action=Once, help="read settings from FILE")
    add_set_option(parser, "overrides environment and file")


def add_set_option(parser: ArgumentParser, remark: str) -> None:
    """--set without --config, for a command that ignores the settings of this machine."""
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="assignments",
        help=f"set one key, such as --set scheduler.max_running=8; {remark}",
    )


def load_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """Loads the settings and resolves `device.threads`.

    `overrides` come from the command's own options and take precedence over `--set`.
    """
    return load_settings_for_each(arguments, [overrides])[0]


def load_settings_for_each(arguments: Namespace, overrides: "Sequence[Sequence[Assignment]]") -> "list[Config]":
    """Like load_settings(), for each list of overrides; warns about environment variables once."""
    from imp_service.config import read_settings
    from imp_service.config.machine import resolve_threads

    warn_of_variables()
    return [resolve_threads(read_settings(arguments.config, [*arguments.assignments, *each])) for each in overrides]


def warn_of_variables() -> None:
    """Warns about environment variables that look like settings but are not read."""
    from imp_service.config.sources import misspelled_variables

    for sentence in misspelled_variables():
        print(warning_line(sentence), file=sys.stderr)


def add_model_options(parser: ArgumentParser, *, as_word: bool = False) -> None:
    """With `as_word` the model may also be a positional argument."""
    add_model_option(parser, MODEL_HELP, as_word=as_word)
    add_context_option(parser)
    add_settings_options(parser)


def add_model_option(parser: "ArgumentParser | _MutuallyExclusiveGroup", text: str, *, as_word: bool = False) -> None:
    parser.add_argument("-m", "--model", metavar="PATH", action=Once, help=text)
    if as_word:
        parser.add_argument("model", metavar="MODEL", nargs="?", action=ModelWord, help="the model, in place of -m")


def add_context_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--context",
        metavar="N",
        action=Once,
        help="longest context in tokens, such as 4K (default: the model's)",
    )


def add_projector_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--projector",
        metavar="FILE",
        action=Once,
        help="read images with this projector (default: mmproj*.gguf in the model's folder, if there is one)",
    )


def projector_assignments(arguments: Namespace) -> "list[Assignment]":
    """Returns the assignment for --projector, of a command that has it."""
    from imp_service.config.sources import of_text_option

    path: str | None = getattr(arguments, "projector", None)
    return [] if path is None else [of_text_option("--projector", "model.projector", path)]


def add_speculation_options(parser: ArgumentParser) -> None:
    """--draft and --no-speculation."""
    group = parser.add_mutually_exclusive_group()
    add_draft_option(group, "speculative decoding with", "; the output stays the same")
    group.add_argument("--no-speculation", action="store_true", help="turn speculative decoding off")


def add_draft_option(parser: "ArgumentParser | _MutuallyExclusiveGroup", verb: str, effect: str = "") -> None:
    """--draft; `verb` and `effect` say in the help what the command does with the model."""
    model = "this smaller model of the same vocabulary, a file or hf:OWNER/NAME:TYPE"
    parser.add_argument("--draft", metavar="PATH", action=Once, help=f"{verb} {model}{effect}")


def speculation_assignments(arguments: Namespace) -> "list[Assignment]":
    """Returns the assignments for --draft and --no-speculation, of a command that has them."""
    from imp_service.config.sources import of_option, of_text_option

    draft: str | None = getattr(arguments, "draft", None)
    if draft is not None:
        return [
            of_option("--draft", "speculation.drafters", '["ngram", "model"]'),
            of_text_option("--draft", "speculation.model", draft),
        ]
    if getattr(arguments, "no_speculation", False):
        return [of_option("--no-speculation", "speculation.drafters", "[]")]
    return []


def context_assignments(arguments: Namespace) -> "list[Assignment]":
    """Returns the assignment for --context."""
    from imp_service.config.sources import of_option

    return (
        [] if arguments.context is None else [of_option("--context", "model.overrides.max_context", arguments.context)]
    )


def pull_reference(arguments: Namespace) -> None:
    """Downloads the models that `-m hf:…` and `--draft hf:…` name, unless they are in the cache.

    Then the argument is the path.
    """
    from imp_service.cli.hub.reference import PREFIX

    for name in ("model", "draft"):
        typed = getattr(arguments, name, None) or ""
        if typed.startswith(PREFIX):
            from imp_service.cli.hub.get import get_model

            setattr(arguments, name, str(get_model(typed)))


def load_model_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """The settings with the model and the context that the command line names."""
    pull_reference(arguments)
    said = [*overrides, *_own_assignments(arguments)]
    config = load_settings(arguments, said)
    find_downloaded_model(arguments, config)
    return _selected(config, arguments)


def _own_assignments(arguments: Namespace) -> "list[Assignment]":
    """Returns the assignments for the options of this module that the command has."""
    return [
        *context_assignments(arguments),
        *projector_assignments(arguments),
        *speculation_assignments(arguments),
    ]


def find_downloaded_model(arguments: Namespace, config: "Config | None" = None) -> None:
    """If the model is the name of a downloaded one, and no name of [models], makes the argument its path."""
    if arguments.model is not None and (found := downloaded_model(arguments.model, config)) is not None:
        arguments.model = str(found.path)


def downloaded_model(typed: str, config: "Config | None" = None) -> "HubModel | None":
    """The downloaded model that a word names; None for a path, a name of [models] and any other word."""
    from imp_service.config.select import names_entry
    from imp_service.core.checkpoint import may_name_model

    if not may_name_model(typed) or os.path.lexists(typed) or (config is not None and names_entry(config, typed)):
        return None
    from imp_service.cli.hub.get import find_downloaded

    return find_downloaded(typed)


def read_model_settings(arguments: Namespace, overrides: "Sequence[Assignment]" = ()) -> "Config":
    """Like load_model_settings(), for a reload: keeps `auto`, and writes nothing to stderr."""
    from imp_service.config import read_settings

    said = [*arguments.assignments, *overrides, *_own_assignments(arguments)]
    return _selected(read_settings(arguments.config, said), arguments)


def _selected(config: "Config", arguments: Namespace) -> "Config":
    from imp_service.config.select import select_model

    return config if arguments.model is None else select_model(config, arguments.model)
