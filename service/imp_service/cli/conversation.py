"""A conversation with a loaded or a served model: its turns, its commands, and recovery when an answer fails."""

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
    "/drop": "removes the oldest message and its answer; /drop 3: three of them",
    "/clear": "removes all messages",
    "/quit": "ends, as Ctrl-D does",
}
# A path such as /usr/bin does not match.
_COMMAND = re.compile(r"(/[A-Za-z]\w*)(?: +(\S.*))?")
ESCAPE = "//"


class Turn(NamedTuple):
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer, or the part of it that arrived."""

    text: str
    is_stopped: bool = False  # by Ctrl-C
    is_cut: bool = False  # by the end of the context


class TurnFailed(Exception):
    """There is no answer. The same message, or another one, may be answered later."""

    def __init__(self, error: Exception, *, is_full: bool) -> None:
        self.error = error
        self.is_full = is_full  # the context does not hold the conversation
        super().__init__(str(error))


class Responder(Protocol):
    def answer(self, turns: Sequence[Turn]) -> ChatAnswer:
        """Writes the answer to the last turn as it comes. Ctrl-C stops it. Raises TurnFailed."""


def add_conversation_options(parser: ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="the system message, before the conversation")
    parser.add_argument(
        "--drop-oldest",
        action="store_true",
        help="when the context is full, remove the oldest messages and go on (default: wait for /drop)",
    )


class Conversation:
    """Alternating turns of user and assistant. If the last turn is the user's, it has no answer yet."""

    def __init__(self, responder: Responder, *, drops_oldest: bool, is_interactive: bool) -> None:
        self._talker = responder
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
                self._run_command(command[1], command[2])

    def say(self, message: str) -> None:
        """Adds a message of the user and asks for its answer."""
        if self._is_unanswered:
            self._turns.pop()
        self._turns.append(Turn("user", message))
        self._ask(drops=self._drops_oldest)

    @property
    def turns(self) -> Sequence[Turn]:
        return self._turns

    @property
    def _is_unanswered(self) -> bool:
        """The last message has no answer."""
        return len(self._turns) % 2 == 1

    def _ask(self, *, drops: bool) -> None:
        """Asks for the answer to the last turn; with `drops`, removes old turns until the rest fits."""
        n_dropped = 0
        while True:
            try:
                answer = self._talker.answer(self._turns)
            except TurnFailed as failure:
                if failure.is_full and drops and self._drop(1):
                    n_dropped += 1
                    continue
                self._print_dropped(n_dropped)
                self._print_failure(failure)
                return
            break
        self._print_dropped(n_dropped)
        self._store(answer)

    def _store(self, answer: ChatAnswer) -> None:
        if answer.is_stopped and not self._is_interactive:
            raise KeyboardInterrupt
        if answer.is_stopped and not answer.text:
            _print("stopped before an answer came; /retry asks again")
            return
        self._turns.append(Turn("assistant", answer.text))
        if answer.is_stopped:
            _print("stopped; what came of the answer stays in the conversation")
        elif answer.is_cut and self._is_interactive:
            _print("the context is full: /drop removes the oldest message, /clear all of them")

    def _print_failure(self, failure: TurnFailed) -> None:
        if not self._is_interactive:
            raise failure.error
        if not failure.is_full:
            print(error_line(*describe(failure.error)), file=sys.stderr, flush=True)
            _print("the message waits: /retry asks again, another message takes its place")
            return
        _, what = describe(failure.error)
        if len(self._turns) == 1:
            _print(f"the message is too long: {what}; shorten it")
        else:
            _print(f"the context is full: {what}")
            _print("the message waits: /drop removes the oldest messages until it fits, and asks again")

    def _run_command(self, name: str, argument: str | None) -> None:
        if name not in HELP or (argument is not None and name != "/drop"):
            self._refuse(name if name not in HELP else f"{name} {argument}")
        elif name == "/help":
            for command, text in HELP.items():
                print(f"{command:8}{text}", file=sys.stderr)
            print(f"{ESCAPE:8}begins a message that begins with /", file=sys.stderr, flush=True)
        elif name == "/clear":
            self._turns.clear()
            _print("the conversation begins anew")
        elif name == "/drop":
            self._run_drop(argument)
        elif self._turns:
            if not self._is_unanswered:
                self._turns.pop()
            self._ask(drops=self._drops_oldest)
        else:
            _print("there is no message yet")

    def _run_drop(self, argument: str | None) -> None:
        count = 1 if argument is None else int(argument) if argument.isdecimal() and len(argument) < 7 else 0
        if count == 0:
            self._refuse(f"/drop {argument}")
        else:
            self._print_dropped(self._drop(count))
            if self._is_unanswered:
                self._ask(drops=True)

    def _drop(self, count: int) -> int:
        """Removes the oldest messages with their answers; returns how many. Keeps a message without an answer."""
        n_dropped = min(count, len(self._turns) // 2)
        del self._turns[: 2 * n_dropped]
        return n_dropped

    def _print_dropped(self, n_dropped: int) -> None:
        if n_dropped:
            whose = (
                "the oldest message and its answer are" if n_dropped == 1 else f"the {n_dropped} oldest messages are"
            )
            _print(f"{whose} no longer part of the conversation, {len(self._turns) // 2} remain")

    def _refuse(self, what: str) -> None:
        """Refuses an unknown command instead of sending it as a message: it may be mistyped."""
        message = f"{what}: unknown command, expected {', '.join(HELP)}; {ESCAPE} begins a message with /"
        if not self._is_interactive:
            raise CommandError("USAGE", message)
        _print(message)


def _print(sentence: str) -> None:
    print(f"— {sentence}.", file=sys.stderr, flush=True)
