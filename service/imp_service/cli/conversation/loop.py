"""The loop of a conversation: its messages, its commands, and recovery when an answer fails."""

import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size

from imp_service.cli.conversation import saved
from imp_service.cli.conversation.commands import ESCAPE, UnknownCommand, help_text, parse_command
from imp_service.cli.conversation.dialogue import ChatAnswer, Dialogue, Responder, Turn, TurnFailed
from imp_service.cli.conversation.options import DEFAULT, read_option
from imp_service.cli.failure import CommandError, describe, error_line
from imp_service.cli.options.sampling import number_names
from imp_service.cli.terminal import VISIBLE, print_note

# The argument of /system and of /image that removes what is set.
NONE = "none"


class Conversation:
    """`edit` lets the user change a text; it returns None if the user gives up. A pipe has none."""

    def __init__(
        self,
        responder: Responder,
        dialogue: Dialogue,
        *,
        drops_oldest: bool,
        is_interactive: bool,
        edit: Callable[[str], str | None] | None = None,
    ) -> None:
        self._responder = responder
        self.dialogue = dialogue
        self._drops_oldest = drops_oldest
        self._is_interactive = is_interactive
        self._edit = edit

    def hold(self, messages: Iterable[str]) -> None:
        """Answers each message until they end or one of them is /exit."""
        if self.dialogue.next_images:
            self._print_images()
        for message in messages:
            try:
                command = parse_command(message)
                if command is None:
                    self.say(message.removeprefix("/") if message.startswith(ESCAPE) else message)
                elif command.name == "/exit":
                    return
                else:
                    self._run(command.name, command.argument)
            except UnknownCommand as error:
                # Not sent as a message: it may be mistyped.
                self._refuse(CommandError("USAGE", str(error)))

    def say(self, message: str) -> None:
        """Adds a message of the user and asks for its answer."""
        if self.dialogue.is_unanswered:
            self.dialogue.turns.pop()
        self.dialogue.turns.append(Turn("user", message, tuple(self.dialogue.next_images)))
        self.dialogue.next_images.clear()
        self._ask(drops=self._drops_oldest)

    def _ask(self, *, drops: bool) -> None:
        """Asks for the answer to the last turn; with `drops`, removes old turns until the rest fits."""
        n_dropped = 0
        while True:
            try:
                answer = self._responder.answer(self.dialogue)
            except TurnFailed as failure:
                if failure.is_full and drops and self.dialogue.drop_oldest(1):
                    n_dropped += 1
                    continue
                self._print_dropped(n_dropped, "oldest")
                self._print_failure(failure)
                return
            break
        self._print_dropped(n_dropped, "oldest")
        self._store(answer)

    def _store(self, answer: ChatAnswer) -> None:
        if answer.is_stopped and not self._is_interactive:
            raise KeyboardInterrupt
        if answer.is_stopped and not answer.text:
            _print("stopped before an answer came; /regenerate asks again")
            return
        self.dialogue.turns.append(Turn("assistant", answer.text))
        if answer.is_stopped:
            _print("stopped; the part of the answer that arrived stays in the conversation")
        elif answer.is_cut and self._is_interactive:
            _print(f"the context is full, so the answer was cut off: {self._way_on()}")

    def _way_on(self) -> str:
        """Returns advice after an answer that filled the context."""
        if self._drops_oldest:
            return "the next message removes the oldest ones"
        if len(self.dialogue.turns) > 2:
            return "/drop-oldest makes room, then /regenerate answers again"
        return "/clear begins a new conversation"

    def _print_failure(self, failure: TurnFailed) -> None:
        if not self._is_interactive:
            raise failure.error
        if not failure.is_full:
            print(error_line(*describe(failure.error)), file=sys.stderr, flush=True)
            _print("the message waits: /regenerate asks again, another message takes its place")
            return
        _, what = describe(failure.error)
        if len(self.dialogue.turns) == 1:
            _print(f"the message is too long: {what}; /edit shortens it")
        else:
            _print(f"the context is full: {what}")
            _print("the message waits: /drop-oldest removes the oldest messages until it fits, and asks again")

    def _run(self, name: str, argument: str | None) -> None:
        runs: dict[str, Callable[[str | None], None]] = {
            "/help": self._help,
            "/system": self._system,
            "/set": self._set,
            "/image": self._add_image,
            "/save": self._save,
            "/load": self._load,
            "/regenerate": self._regenerate,
            "/edit": self._edit_last,
            "/drop": self._drop,
            "/drop-oldest": self._drop_oldest,
            "/clear": self._clear,
        }
        try:
            runs[name](argument)
        except (CommandError, OSError) as error:
            self._refuse(error)

    def _help(self, _: str | None) -> None:
        print(help_text(get_terminal_size().columns), file=sys.stderr, flush=True)

    def _system(self, text: str | None) -> None:
        if text is not None:
            self.dialogue.system = None if text == NONE else text
        shown = self.dialogue.system
        if shown is None:
            _print("there is no system message")
        else:
            print(f"system message: {shown.translate(VISIBLE)}", file=sys.stderr, flush=True)

    def _set(self, typed: str | None) -> None:
        if typed is None:
            self._print_options()
            return
        name, value = read_option(typed)
        if value is None:
            self.dialogue.options.pop(name, None)
            _print(f"{name} has its default")
            return
        self._check({name: value})
        self.dialogue.options[name] = value
        _print(f"{name} is {value:g}" if isinstance(value, float) else f"{name} is {value}")

    def _print_options(self) -> None:
        options = self.dialogue.options
        defaults = {row[0]: row for row in self._responder.default_sampling()}
        for name, value in options.items():
            print(f"{name} {value}", file=sys.stderr)
        for name, text, origin in defaults.values():
            if name not in options:
                print(f"{name} {text} (default of {origin})", file=sys.stderr)
        others = [name for name in number_names() if name not in options and name not in defaults]
        _print(f"not set: {', '.join(others)}; /set NAME VALUE changes one, /set NAME {DEFAULT} undoes it")

    def _add_image(self, name: str | None) -> None:
        assert name is not None  # narrows
        images = self.dialogue.next_images
        if name == NONE:
            images.clear()
            self._print_images()
            return
        try:
            images.append(self._responder.read_image(_unquoted(name)))
        except Exception as error:  # of a server, too
            self._refuse(error)
            return
        self._print_images()

    def _print_images(self) -> None:
        count = len(self.dialogue.next_images)
        _print(f"the next message has {count or 'no'} image{'s' if count > 1 else ''}")

    def _save(self, word: str | None) -> None:
        assert word is not None  # narrows
        path = saved.save(self.dialogue, word)
        _print(f"{_messages(len(self.dialogue.turns))} in {path}")

    def _load(self, word: str | None) -> None:
        assert word is not None  # narrows
        loaded = saved.load(word)
        self._check(loaded.options)
        self.dialogue = loaded
        _print(f"{_messages(len(loaded.turns))} from {word}")

    def _check(self, options: dict[str, float]) -> None:
        """Raises CommandError if the responder does not take them."""
        try:
            self._responder.check_options(options)
        except Exception as error:
            raise CommandError(*describe(error)) from None

    def _regenerate(self, _: str | None) -> None:
        self._require_message()
        if not self.dialogue.is_unanswered:
            self.dialogue.turns.pop()
        self._ask(drops=self._drops_oldest)

    def _edit_last(self, _: str | None) -> None:
        self._require_message()
        if self._edit is None:
            raise CommandError("USAGE", "/edit: expected a terminal")
        last = max(i for i, turn in enumerate(self.dialogue.turns) if turn.role == "user")
        text = self._edit(self.dialogue.turns[last].content)
        if text is not None and text.strip():
            self.dialogue.next_images[:0] = self.dialogue.turns[last].images
            del self.dialogue.turns[last:]
            self.say(text)

    def _require_message(self) -> None:
        if not self.dialogue.turns:
            raise CommandError("USAGE", "there is no message yet")

    def _drop(self, typed: str | None) -> None:
        self._print_dropped(self.dialogue.drop_last(_count("/drop", typed)), "last")

    def _drop_oldest(self, typed: str | None) -> None:
        self._print_dropped(self.dialogue.drop_oldest(_count("/drop-oldest", typed)), "oldest")
        if self.dialogue.is_unanswered:
            self._ask(drops=True)

    def _clear(self, _: str | None) -> None:
        self.dialogue.turns.clear()
        self.dialogue.next_images.clear()
        _print("the conversation starts again")

    def _print_dropped(self, n_dropped: int, which: str) -> None:
        if n_dropped:
            whose = (
                f"the {which} message and its answer are" if n_dropped == 1 else f"the {n_dropped} {which} messages are"
            )
            _print(f"{whose} no longer part of the conversation, {len(self.dialogue.turns) // 2} remain")

    def _refuse(self, error: Exception) -> None:
        if not self._is_interactive:
            raise error
        reason, what = describe(error)
        if reason == "USAGE":
            _print(what.removesuffix("."))
        else:
            print(error_line(reason, what), file=sys.stderr, flush=True)


def _count(name: str, typed: str | None) -> int:
    if typed is None:
        return 1
    count = int(typed) if typed.isdecimal() and len(typed) < 7 else 0
    if count == 0:
        raise CommandError("USAGE", f"{name} {typed}: unknown command, expected {name} or {name} N")
    return count


def _unquoted(name: str) -> str:
    """A terminal puts quotes around the name of a file that is dropped on it."""
    is_quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "'\""
    return name[1:-1] if is_quoted else name


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _print(sentence: str) -> None:
    print_note(f"— {sentence}.")
