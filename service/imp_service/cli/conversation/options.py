"""The options that a conversation sets: the fields of a sampler, the seed and the most tokens of an answer."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from imp_service.cli.conversation.commands import nearest
from imp_service.cli.conversation.dialogue import Dialogue
from imp_service.cli.failure import CommandError
from imp_service.cli.options.sampling import is_whole, number_names

DEFAULT = "default"


def add_conversation_options(parser: ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="the system message, before the conversation")
    parser.add_argument(
        "--drop-oldest",
        action="store_true",
        help="when the context is full, remove the oldest messages and go on (default: wait for /drop-oldest)",
    )
    parser.add_argument(
        "--plain", action="store_true", help="show an answer as the model writes it (default: Markdown on a terminal)"
    )
    parser.add_argument("--no-history", action="store_true", help="do not keep what is typed for the next conversation")


def begin_dialogue(arguments: Namespace, images: Sequence[bytes] = ()) -> Dialogue:
    """An empty conversation with the options of the command line. Its first message has the images."""
    given = {name: getattr(arguments, name) for name in number_names()}
    options = {name: value for name, value in given.items() if value is not None}
    return Dialogue(arguments.system, options, next_images=list(images))


def read_option(typed: str) -> tuple[str, float | None]:
    """The name and the value of "NAME VALUE"; None is the default. Raises CommandError."""
    name, _, word = typed.replace("=", " ", 1).partition(" ")
    name, word = require_name(name), word.strip()
    if not word:
        raise CommandError("USAGE", f"/set {name}: expected a value, or {DEFAULT}")
    return name, None if word == DEFAULT else _number(name, word)


def require_name(word: str) -> str:
    """The option that a word names, with - or _. Raises CommandError."""
    name, names = word.removeprefix("--").replace("-", "_"), number_names()
    if name not in names:
        raise CommandError("USAGE", f"{word}: unknown option{nearest(name, names)}; the options: {', '.join(names)}")
    return name


def _number(name: str, word: str) -> float:
    whole = is_whole(name)
    try:
        return int(word) if whole else float(word)
    except ValueError:
        raise CommandError("USAGE", f"{name}: {word}, expected a {'whole ' if whole else ''}number") from None
