"""The words that can follow each command, from the parser: commands, options and their values."""

import re
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from imp_service.cli.commands import Command

_FILES = re.compile(r"(FILE|PATH|MODEL)\b.*")


class Option(NamedTuple):
    names: tuple[str, ...]
    text: str
    takes_value: bool
    takes_files: bool
    choices: tuple[str, ...]


class Place(NamedTuple):
    """After these words, such as "imp call chat"."""

    words: str
    commands: tuple[tuple[str, str], ...]  # with what each does
    choices: tuple[str, ...]  # of the first argument
    takes_files: bool  # as arguments
    options: tuple[Option, ...]


def places_of(parser: ArgumentParser) -> list[Place]:
    """The places of the parser and of all its subcommands."""
    return list(_places(parser, parser.prog))


def implying_methods(places: Sequence[Place], commands: Sequence[Command]) -> list[Place]:
    """Offers the options of the default method also where no method is typed."""
    implied = {f"imp {c.name}": f"imp {c.name} {c.methods[0]}" for c in commands if c.methods}
    options = {place.words: place.options for place in places}
    return [
        place._replace(options=options[implied[place.words]]) if place.words in implied else place for place in places
    ]


def _places(parser: ArgumentParser, words: str) -> Iterator[Place]:
    actions = parser._actions
    below = next((action for action in actions if isinstance(action, _SubParsersAction)), None)
    texts = {} if below is None else {choice.dest: choice.help or "" for choice in below._choices_actions}
    arguments = [action for action in actions if not action.option_strings and action is not below]
    yield Place(
        words,
        tuple(texts.items()),
        tuple(str(choice) for action in arguments for choice in action.choices or ()),
        any(_is_file(action) for action in arguments),
        tuple(_option(action) for action in actions if action.option_strings),
    )
    for name in texts:
        assert below is not None  # narrows
        yield from _places(below.choices[name], f"{words} {name}")


def _option(action: Action) -> Option:
    takes_value = action.nargs != 0
    return Option(
        tuple(action.option_strings),
        (action.help or "").replace("%(prog)s", "imp"),
        takes_value,
        takes_value and _is_file(action),
        tuple(str(choice) for choice in action.choices or ()),
    )


def _is_file(action: Action) -> bool:
    return isinstance(action.metavar, str) and _FILES.fullmatch(action.metavar) is not None
