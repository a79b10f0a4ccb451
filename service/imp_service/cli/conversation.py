"""A conversation with a loaded or a served model: its turns, its commands, and what happens if an answer fails."""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from imp_service.cli.failure import CommandError, describe, error_line

HELP = {
    "/help": "shows these commands",
    "/retry": "asks the last message again",
    "/drop": "leaves out the oldest message and its answer; /drop 3: three of them",
    "/clear": "leaves out all of them",
    "/quit": "ends, as Ctrl-D does",
}
# A path such as /usr/bin is none.
_COMMAND = re.compile(r"(/[A-Za-z]\w*)(?: +(\S.*))?")
ESCAPE = "//"


class Turn(NamedTuple):
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, or the part of it that came."""

    text: str
    is_stopped: bool = False  # by Ctrl-C
    is_cut: bool = False  # by the end of the context


class TurnFailed(Exception):
    """There was no answer; the same message again, or another one, may get one."""

    def __init__(self, error: Exception, *, is_full: bool) -> None:
        self.error = error
        self.is_full = is_full  # the context does not hold the conversation
        super().__init__(str(error))


class Talker(Protocol):
    def answer(self, turns: Sequence[Turn]) -> Said:
        """Writes the answer to the last turn as it comes. Ctrl-C stops it; TurnFailed where there is none."""


def add_conversation_options(parser: ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation begins")
    parser.add_argument(
        "--drop-oldest",
        action="store_true",
        help="when the context is full, leave out the oldest messages and go on (default: say so and wait for /drop)",
    )


class Conversation:
    """Turns of user and assistant, one after the other. A last turn of the user has no answer yet."""

    def __init__(self, talker: Talker, *, drops_oldest: bool, is_interactive: bool) -> None:
        self._talker = talker
        self._drops_oldest = drops_oldest
        self._is_interactive = is_interactive
        self._turns: list[Turn] = []

    def hold(self, messages: Iterable[str]) -> None:
        """Answers each message until they end or one of them is /quit."""
        for message in messages:
            command = _COMMAND.fullmatch(message.strip())
            if command is None:
                self.say(message.removeprefix("/") if message.startswith(ESCAPE) else message)
            elif command[1] == "/quit":
                return
            else:
                self._obey(command[1], command[2])

    def say(self, message: str) -> None:
        """A message of the user, and the answer."""
        if self._waits:
            self._turns.pop()
        self._turns.append(Turn("user", message))
        self._ask(drops=self._drops_oldest)

    @property
    def turns(self) -> Sequence[Turn]:
        return self._turns

    @property
    def _waits(self) -> bool:
        """The last message has no answer."""
        return len(self._turns) % 2 == 1

    def _ask(self, *, drops: bool) -> None:
        """Asks for the answer to the last turn; with `drops`, of as many turns as fit."""
        n_dropped = 0
        while True:
            try:
                said = self._talker.answer(self._turns)
            except TurnFailed as failure:
                if failure.is_full and drops and self._drop(1):
                    n_dropped += 1
                    continue
                self._tell_dropped(n_dropped)
                self._tell_failure(failure)
                return
            break
        self._tell_dropped(n_dropped)
        self._keep(said)

    def _keep(self, said: Said) -> None:
        if said.is_stopped and not self._is_interactive:
            raise KeyboardInterrupt
        if said.is_stopped and not said.text:
            _tell("stopped before an answer came; /retry asks again")
            return
        self._turns.append(Turn("assistant", said.text))
        if said.is_stopped:
            _tell("stopped; what came of the answer stays in the conversation")
        elif said.is_cut and self._is_interactive:
            _tell("the context is full: /drop leaves out the oldest message, /clear all of them")

    def _tell_failure(self, failure: TurnFailed) -> None:
        if not self._is_interactive:
            raise failure.error
        if not failure.is_full:
            print(error_line(*describe(failure.error)), file=sys.stderr, flush=True)
            _tell("the message waits: /retry asks again, another message takes its place")
            return
        _, what = describe(failure.error)
        if len(self._turns) == 1:
            _tell(f"the message is too long: {what}; shorten it")
        else:
            _tell(f"the context is full: {what}")
            _tell("the message waits: /drop leaves out the oldest messages until it fits, and asks again")

    def _obey(self, name: str, argument: str | None) -> None:
        if name not in HELP or (argument is not None and name != "/drop"):
            self._refuse(name if name not in HELP else f"{name} {argument}")
        elif name == "/help":
            for command, text in HELP.items():
                print(f"{command:8}{text}", file=sys.stderr)
            print(f"{ESCAPE:8}begins a message that begins with /", file=sys.stderr, flush=True)
        elif name == "/clear":
            self._turns.clear()
            _tell("the conversation begins anew")
        elif name == "/drop":
            self._obey_drop(argument)
        elif self._turns:
            if not self._waits:
                self._turns.pop()
            self._ask(drops=self._drops_oldest)
        else:
            _tell("there is no message yet")

    def _obey_drop(self, argument: str | None) -> None:
        count = 1 if argument is None else int(argument) if argument.isdecimal() and len(argument) < 7 else 0
        if count == 0:
            self._refuse(f"/drop {argument}")
        else:
            self._tell_dropped(self._drop(count))
            if self._waits:
                self._ask(drops=True)

    def _drop(self, count: int) -> int:
        """Takes away the oldest messages with their answers, never one without an answer; returns how many."""
        n_dropped = min(count, len(self._turns) // 2)
        del self._turns[: 2 * n_dropped]
        return n_dropped

    def _tell_dropped(self, n_dropped: int) -> None:
        if n_dropped:
            whose = (
                "the oldest message and its answer are" if n_dropped == 1 else f"the {n_dropped} oldest messages are"
            )
            _tell(f"{whose} no longer part of the conversation, {len(self._turns) // 2} remain")

    def _refuse(self, what: str) -> None:
        """What is no command is not sent either: it may be a command that was mistyped."""
        message = f"{what}: no command of a conversation, expected {', '.join(HELP)}; {ESCAPE} begins a message with /"
        if not self._is_interactive:
            raise CommandError("USAGE", message)
        _tell(message)


def _tell(sentence: str) -> None:
    print(f"— {sentence}.", file=sys.stderr, flush=True)
