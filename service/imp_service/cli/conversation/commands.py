"""The commands of a conversation: their names, their arguments and what they do."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import fill
from typing import NamedTuple

ESCAPE = "//"
# A path such as /usr/bin does not match.
_COMMAND = re.compile(r"(/(?:[A-Za-z][\w-]*|\?))(?:\s+(\S.*))?", re.DOTALL)


class ChatCommand(NamedTuple):
    argument: str  # in brackets if it may be left out; empty if there is none
    text: str


COMMANDS = {
    "/help": ChatCommand("", "shows these commands"),
    "/system": ChatCommand("[TEXT]", "sets the system message; without TEXT shows it, none removes it"),
    "/set": ChatCommand(
        "[NAME VALUE]", "sets an option, such as temperature 0.7 or temperature default; without arguments lists them"
    ),
    "/image": ChatCommand("FILE", "adds an image to the next message; none removes those that were added"),
    "/save": ChatCommand("FILE", "writes messages and options as JSON"),
    "/load": ChatCommand("FILE", "continues a saved conversation"),
    "/regenerate": ChatCommand("", "asks the last message again"),
    "/edit": ChatCommand("", "changes the last message and asks again"),
    "/drop": ChatCommand("[N]", "removes the last message and its answer, or N of them"),
    "/drop-oldest": ChatCommand("[N]", "removes the oldest message and its answer, or N of them"),
    "/clear": ChatCommand("", "removes all messages"),
    "/exit": ChatCommand("", "ends, as Ctrl-D does"),
}
ALIASES = {"/quit": "/exit", "/bye": "/exit", "/retry": "/regenerate", "/?": "/help"}


_WAYS_OUT = f"/help lists the commands, {ESCAPE} begins a message with /"


class UnknownCommand(Exception):
    """The message is no command, but looks like one."""


class TypedCommand(NamedTuple):
    name: str  # of COMMANDS
    argument: str | None


def parse_command(message: str) -> TypedCommand | None:
    """The command that a message is; None for a message to the model. Raises UnknownCommand."""
    found = _COMMAND.fullmatch(message.strip())
    if found is None:
        return None
    name, argument = ALIASES.get(found[1], found[1]), found[2]
    known = COMMANDS.get(name)
    if known is None:
        raise UnknownCommand(f"{found[1]}: unknown command{nearest(found[1], [*COMMANDS, *ALIASES])}; {_WAYS_OUT}")
    if argument is not None and not known.argument:
        raise UnknownCommand(f"{found[1]} {argument}: unknown command, {found[1]} takes no argument; {_WAYS_OUT}")
    if argument is None and known.argument and not known.argument.startswith("["):
        raise UnknownCommand(f"{found[1]}: expected {found[1]} {known.argument}")
    return TypedCommand(name, argument)


def nearest(name: str, names: Iterable[str]) -> str:
    """For example " (did you mean /exit?)", or empty if no name is similar."""
    known = list(names)
    close = [other for other in known if other.startswith(name)] or get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def help_text(n_columns: int) -> str:
    rows = [(f"{name} {command.argument}".rstrip(), command.text) for name, command in COMMANDS.items()]
    rows += [(ESCAPE, "begins a message that begins with /")]
    rows += [("Alt+Enter", "begins a new line, like Enter after \\")]
    left = max(len(head) for head, _ in rows) + 2
    lines = [
        fill(head.ljust(left) + text, max(n_columns, left + 20), subsequent_indent=" " * left) for head, text in rows
    ]
    return "\n".join(lines)
