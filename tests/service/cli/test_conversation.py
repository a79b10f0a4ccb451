"""A conversation keeps its turns, whatever happens to an answer: `imp chat`, also in a pipe, and `imp call chat`."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc import StatusCode

from imp_service import ChatMessage, ChatPrompt, GenerationRequest, SamplingOptions, StopOptions
from imp_service.cli.conversation.dialogue import ChatAnswer, Dialogue, TurnFailed
from imp_service.cli.conversation.loop import Conversation
from imp_service.cli.failure import CommandError
from imp_service.cli.terminal import print_note
from imp_service.cli.typed_history import MAX_BYTES, history_path, open_history
from imp_service.pb.inference_pb2 import GenerateRequest
from support.machine.command_line import demo_with
from support.machine.terminal_session import CTRL_C, PROMPT, terminal_session
from support.run.patience import HANGS_AFTER
from support.servers.scripted_server import refuse, scripted_server, story
from support.servers.server_process import server_process

IMP = (sys.executable, "-m", "imp_service")
FULL = CommandError("CONTEXT_TOO_LONG", "a prompt of 90 tokens exceeds the context of 64")
BUSY = CommandError("QUEUE_FULL", "256 requests wait")


class Script:
    """Returns the given answers, each a text or an exception. It refuses more than `room` turns."""

    def __init__(self, *answers: ChatAnswer | Exception | str, room: int = 1000) -> None:
        self._answers = list(answers)
        self._room = room
        self.asked: list[list[str]] = []

    def default_sampling(self) -> list[tuple[str, str, str]]:
        return [("temperature", "0.8", "imp"), ("min_p", "0.05", "imp")]

    def check_options(self, options: dict[str, float]) -> None:
        if options.get("temperature", 0) > 100:
            raise CommandError("FIELD_INVALID", "--temperature: expected 0 to 100")

    def answer(self, dialogue: Dialogue) -> ChatAnswer:
        turns = dialogue.turns
        self.asked.append([turn.content for turn in turns])
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
        if len(turns) > self._room:
            raise TurnFailed(FULL, is_full=True)
        found = self._answers.pop(0) if self._answers else f"to {turns[-1].content}"
        if isinstance(found, Exception):
            raise TurnFailed(found, is_full=False)
        return found if isinstance(found, ChatAnswer) else ChatAnswer(found)


def conversation_with(
    responder: Script, *, drops_oldest: bool = False, is_interactive: bool = True, typed: str | None = None
) -> Conversation:
    """Returns a conversation whose user adds `typed` to a text when asked to edit it."""
    edit = None if typed is None else lambda text: text + typed
    return Conversation(responder, Dialogue(), drops_oldest=drops_oldest, is_interactive=is_interactive, edit=edit)


def contents(conversation: Conversation) -> list[str]:
    return [turn.content for turn in conversation.dialogue.turns]


def held(responder: Script, *messages: str, drops_oldest: bool = False) -> list[str]:
    conversation = conversation_with(responder, drops_oldest=drops_oldest)
    conversation.hold(messages)
    return contents(conversation)


@pytest.mark.parametrize(
    ("n_before", "drops_oldest", "way_on"),
    [
        (0, False, "/clear begins a new conversation"),
        (1, False, "/drop-oldest makes room, then /regenerate answers again"),
        (1, True, "the next message removes the oldest ones"),
    ],
)
def test_cmd_2_an_answer_that_fills_the_context_names_the_way_on(
    capfd, n_before: int, drops_oldest: bool, way_on: str
) -> None:
    cut = ChatAnswer("half an ans", is_cut=True)
    responder = Script(*["whole"] * n_before, cut)
    conversation = conversation_with(responder, drops_oldest=drops_oldest)
    conversation.hold([*["a"] * n_before, "b"])
    assert capfd.readouterr().err == f"— the context is full, so the answer was cut off: {way_on}.\n"
    if "/regenerate" in way_on:
        conversation.hold(["/drop-oldest", "/regenerate"])
        assert contents(conversation) == ["b", "to b"]


def test_cmd_2_notes_on_a_terminal_break_between_words(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_note("— the message waits: /drop-oldest removes the oldest messages until it fits.")
    assert capsys.readouterr().err.splitlines() == [
        "— the message waits: /drop-oldest",
        "removes the oldest messages until it",
        "fits.",
    ]


def test_cmd_2_a_full_context_says_so_and_the_message_waits_for_drop(capfd) -> None:
    responder = Script(room=3)
    assert held(responder, "a", "b", "c") == ["a", "to a", "b", "to b", "c"]
    err = capfd.readouterr().err
    assert err == (
        "— the context is full: a prompt of 90 tokens exceeds the context of 64.\n"
        "— the message waits: /drop-oldest removes the oldest messages until it fits, and asks again.\n"
    )
    assert held(responder, "a", "b", "c", "/drop-oldest") == ["b", "to b", "c", "to c"]
    assert "the oldest message and its answer are no longer part of the conversation" in capfd.readouterr().err


def test_cmd_2_as_many_as_it_takes_are_dropped_with_a_notice(capfd) -> None:
    responder = Script()
    messages = ["a", "b", "c", "d"]
    conversation = conversation_with(responder, drops_oldest=True, is_interactive=False)
    conversation.hold(messages)
    responder._room = 3
    conversation.say("e")
    assert responder.asked[-1] == ["d", "to d", "e"]
    assert capfd.readouterr().err == "— the 3 oldest messages are no longer part of the conversation, 1 remain.\n"


def test_cmd_2_a_message_that_is_too_long_by_itself_is_reported_and_replaced(capfd) -> None:
    responder = Script(room=0)
    assert held(responder, "a", drops_oldest=True) == ["a"]
    assert "— the message is too long: " in capfd.readouterr().err
    responder._room = 1
    assert held(responder, "a", "b") == ["a", "to a", "b"]


def test_cmd_2_a_failed_answer_loses_nothing(capfd) -> None:
    responder = Script("one", BUSY, "two")
    assert held(responder, "a", "b", "/retry") == ["a", "one", "b", "two"]
    assert responder.asked == [["a"], ["a", "one", "b"], ["a", "one", "b"]]
    assert capfd.readouterr().err.splitlines() == [
        "imp: error: QUEUE_FULL: 256 requests wait",
        "— the message waits: /regenerate asks again, another message takes its place.",
    ]


def test_cmd_3_a_stopped_answer_stays_and_an_empty_one_does_not(capfd) -> None:
    responder = Script(ChatAnswer("Once", is_stopped=True), ChatAnswer("", is_stopped=True))
    assert held(responder, "a", "b", "c") == ["a", "Once", "c", "to c"]
    assert responder.asked[-1] == ["a", "Once", "c"]
    err = capfd.readouterr().err
    assert "the part of the answer that arrived stays" in err and "stopped before an answer came" in err


def test_cmd_2_retry_drop_and_clear() -> None:
    responder = Script("one", "two", "three")
    assert held(responder, "a", "/retry") == ["a", "two"]
    assert held(Script(), "a", "b", "c", "d", "/drop-oldest 2") == ["c", "to c", "d", "to d"]
    assert held(Script(), "a", "b", "/clear") == []
    for word in ("/quit", "/bye"):
        assert held(Script(), "a", word, "b") == ["a", "to a"]


def test_cmd_11_the_question_mark_is_help(capfd) -> None:
    assert held(Script(), "/?") == []
    assert "/regenerate" in capfd.readouterr().err


UNKNOWN = ["/qiut", "/exit now", "/drop many", "/drop 0", "/clear all", "/Quit"]


@pytest.mark.parametrize("word", UNKNOWN)
def test_cmd_4_an_unknown_word_is_not_sent(word: str, capfd) -> None:
    responder = Script()
    assert held(responder, word) == []
    assert responder.asked == []
    assert capfd.readouterr().err.startswith(f"— {word}: unknown command")
    with pytest.raises(CommandError, match="unknown command"):
        conversation_with(responder, is_interactive=False).hold([word])


SENT = {"//quit": "/quit", "/usr/bin is what?": "/usr/bin is what?", "/ 2": "/ 2", "a\n/b": "a\n/b"}


@pytest.mark.parametrize(("typed", "sent"), SENT.items())
def test_cmd_4_what_begins_like_a_command_can_be_sent(typed: str, sent: str) -> None:
    responder = Script()
    held(responder, typed)
    assert responder.asked == [[sent]]


def told(capfd) -> str:
    return capfd.readouterr().err


def test_cmd_11_the_commands_change_what_is_asked(capfd) -> None:
    responder = Script("one", "two")
    conversation = conversation_with(responder)
    conversation.hold(["a", "b", "/system Be brief.", "/set temperature 0.5", "/set top-k=3", "/set max_tokens 9", "c"])
    asked = conversation.dialogue
    assert asked.system == "Be brief."
    assert asked.options == {"temperature": 0.5, "top_k": 3, "max_tokens": 9}
    assert contents(conversation) == ["a", "one", "b", "two", "c", "to c"]
    told(capfd)
    conversation.hold(["/set seed 12345678901", "/set", "/set seed default"])
    assert "\nseed 12345678901\n" in told(capfd)
    conversation.hold(["/set", "/system", "/set temperature default", "/system none", "/drop 2"])
    assert (asked.system, list(asked.options)) == (None, ["top_k", "max_tokens"])
    assert contents(conversation) == ["a", "one"]
    err = told(capfd)
    assert err.startswith(
        "temperature 0.5\ntop_k 3\nmax_tokens 9\nmin_p 0.05 (default of imp)\n— not set: top_p, typical_p, "
    )
    assert "system message: Be brief.\n" in err


def test_cmd_11_drop_removes_the_message_that_waits_first() -> None:
    responder = Script("one", BUSY)
    assert held(responder, "a", "b", "/drop") == ["a", "one"]
    assert held(Script(), "a", "/drop", "/drop") == []


def test_cmd_11_edit_asks_the_changed_message() -> None:
    responder = Script("one", "two")
    conversation = conversation_with(responder, typed="!")
    conversation.hold(["a", "b", "/edit"])
    assert responder.asked[-1] == contents(conversation)[:-1] == ["a", "one", "b!"]
    conversation = conversation_with(Script(), typed="!")
    conversation._edit = lambda text: None
    conversation.hold(["a", "/edit"])
    assert contents(conversation) == ["a", "to a"]


def test_cmd_11_a_saved_conversation_goes_on(tmp_path: Path, capfd) -> None:
    file = tmp_path / "a talk.json"
    first = conversation_with(Script("one"))
    first.hold(["/system Be brief.", "/set seed 7", "a", f"/save {file}"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_bytes()) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "one"},
        ],
        "options": {"seed": 7},
    }
    second = conversation_with(Script())
    second.hold(["gone", f"/load {file}", "b", f"/save {file}", "/clear", f"/load {file}"])
    assert second.dialogue == Dialogue("Be brief.", {"seed": 7}, second.dialogue.turns)
    assert contents(second) == ["a", "one", "b", "to b"]


def test_cmd_11_save_replaces_no_other_file(tmp_path: Path, capfd) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    held(Script(), "a", f"/save {tmp_path}/model.gguf")
    assert (tmp_path / "model.gguf").read_bytes() == b"GGUF"
    assert "CANNOT_CREATE" in told(capfd)


UNFIT = {
    "[": "",
    "[]": "no list of messages",
    '{"messages": [{"role": "user"}]}': "a message without role or content",
    '{"messages": [{"role": "assistant", "content": ""}]}': "the roles do not alternate",
    '{"messages": [], "options": {"temperature": "hot"}}': "temperature is not a number",
    '{"messages": [], "options": {"seed": 0.5}}': "seed is not an integer",
    '{"messages": [], "options": []}': "options are not an object",
    '{"messages": [], "options": {"temperature": 101}}': "expected 0 to 100",
    '{"messages": [], "options": {"heat": 1}}': "unknown option",
}


@pytest.mark.parametrize(("content", "words"), UNFIT.items())
def test_cmd_11_a_file_that_is_no_conversation_changes_nothing(content: str, words: str, tmp_path: Path, capfd) -> None:
    (tmp_path / "f").write_text(content)
    assert held(Script(), "a", f"/load {tmp_path}/f") == ["a", "to a"]
    assert words in told(capfd)
    assert held(Script(), "a", f"/load {tmp_path}", f"/load {tmp_path}/none") == ["a", "to a"]
    assert "not a regular file" in told(capfd)


REFUSED = {
    "/set temp 1": "temp: unknown option (did you mean temperature?)",
    "/set temperature": "/set temperature: expected a value, or default",
    "/set temperature hot": "temperature: hot, expected a number",
    "/set top_k 1.5": "top_k: 1.5, expected a whole number",
    "/set temperature 101": "expected 0 to 100",
    "/save": "/save: expected /save FILE",
    "/edit": "there is no message yet",
    "/regenrate": "(did you mean /regenerate?)",
}


@pytest.mark.parametrize(("typed", "words"), REFUSED.items())
def test_cmd_11_a_refusal_says_what_to_type(typed: str, words: str, capfd) -> None:
    responder = Script()
    conversation = conversation_with(responder)
    conversation.hold([typed])
    assert words in told(capfd)
    assert (conversation.dialogue, responder.asked) == (Dialogue(), [])
    with pytest.raises(CommandError):
        conversation_with(responder, is_interactive=False).hold([typed])


class Scripted:
    """A server that records its requests, and repeats the last message as the answer."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str]]] = []

    def generate(self, request: GenerateRequest, context):
        turns = [(message.role, message.content) for message in request.chat.messages]
        self.asked.append(turns)
        yield from story(f"[{turns[-1][1]}]")


@contextmanager
def conversation(folder: Path, generate, *options: str, **variables: str):
    with (
        scripted_server(Generate=generate) as address,
        terminal_session(folder, *IMP, "call", "chat", "--target", address, *options, **variables) as terminal,
    ):
        terminal.read_until(PROMPT)
        yield terminal


@pytest.mark.long
def test_cmd_4_pasted_lines_are_one_message(tmp_path: Path) -> None:
    server = Scripted()
    with conversation(tmp_path, server.generate) as terminal:
        terminal.type("\x1b[200~one\ntwo\n\nthree\x1b[201~\r")
        terminal.read_until("three]")
        terminal.read_until(PROMPT)
        terminal.type("four\r")
        terminal.read_until("[four]")
    contents = [[content for _, content in turns] for turns in server.asked]
    assert contents == [["one\ntwo\n\nthree"], ["one\ntwo\n\nthree", "[one\ntwo\n\nthree]", "four"]]


@pytest.mark.long
def test_cmd_12_a_message_of_several_lines(tmp_path: Path) -> None:
    server = Scripted()
    with conversation(tmp_path, server.generate) as terminal:
        terminal.type("one\\\rtwo\x1b\rthree\r")
        terminal.read_until("three]")
        terminal.read_until(PROMPT)
        terminal.resize(10, 30)
        terminal.type("four words are more than thirty columns\x01zero \r")
        terminal.read_until("columns]")
    asked = [turns[-1][1] for turns in server.asked]
    assert asked == ["one\ntwo\nthree", "zero four words are more than thirty columns"]


@pytest.mark.long
def test_cmd_12_edit_opens_the_last_message(tmp_path: Path) -> None:
    server = Scripted()
    with conversation(tmp_path, server.generate) as terminal:
        for typed in ("hello\r", "/edit\r"):
            terminal.type(typed)
            terminal.read_until("[hello]" if typed == "hello\r" else "> hello")
            if typed == "hello\r":
                terminal.read_until(PROMPT)
        terminal.type(" world\r")
        terminal.read_until("[hello world]")
    assert server.asked == [[("user", "hello")], [("user", "hello world")]]


UP = "\x1b[A"


@pytest.mark.long
def test_cmd_12_what_was_typed_is_there_the_next_time(tmp_path: Path) -> None:
    history = tmp_path / "state" / "imp" / "chat_history"
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    server = Scripted()
    for typed, options in (("hidden\r", ["--no-history"]), ("hello\r", []), (f"{UP} again\r", [])):
        with conversation(tmp_path, server.generate, *options, **state) as terminal:
            terminal.type(typed)
            terminal.read_until("]")
            terminal.read_until(PROMPT)
        assert history.exists() == (not options)
    assert [turns[-1][1] for turns in server.asked] == ["hidden", "hello", "hello again"]
    assert history.stat().st_mode & 0o777 == 0o600
    assert b"hidden" not in history.read_bytes()


@pytest.mark.long
def test_cmd_12_the_history_keeps_the_newest_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_path()
    typed = [f"{i}\n# {i} {'é' * (i % 500)}" for i in range(6000)]
    history, sizes = open_history(), []
    for each in typed:
        history.append_string(each)
        sizes.append(path.stat().st_size)
    assert MAX_BYTES * 0.9 < max(sizes) <= MAX_BYTES and path.stat().st_mode & 0o777 == 0o600
    kept = list(open_history().load_history_strings())
    assert len(kept) > 500 and kept == typed[: -len(kept) - 1 : -1]
    history.append_string("x" * MAX_BYTES)
    assert path.stat().st_size == sizes[-1]


def test_cmd_12_a_large_history_is_cut_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_path()
    path.parent.mkdir()
    message = b"\n# 2026-01-01 00:00:00\n+%d\n"
    path.write_bytes(b"\n# now\n+" + b"x" * 3 * MAX_BYTES + b"\n" + b"".join(message % i for i in range(3)))
    assert list(open_history().load_history_strings()) == ["2", "1", "0"]
    assert path.stat().st_size < 100
    path.write_bytes(b"\n# now\n+" + b"x" * 3 * MAX_BYTES)
    assert list(open_history().load_history_strings()) == []


@pytest.mark.long
def test_cmd_12_a_history_that_cannot_be_kept_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = Scripted()
    with (
        scripted_server(Generate=server.generate) as address,
        terminal_session(
            tmp_path, *IMP, "call", "chat", "--target", address, XDG_STATE_HOME=str(tmp_path / "file")
        ) as terminal,
    ):
        terminal.read_until("imp: warning: history: ")
        terminal.read_until(PROMPT)
        terminal.type("hello\r")
        terminal.read_until("[hello]")


@pytest.mark.long
def test_cmd_12_other_encodings(tmp_path: Path) -> None:
    """Bytes outside the terminal's encoding are refused, and nothing is lost."""
    server = Scripted()
    with conversation(tmp_path, server.generate) as terminal:
        os.write(terminal.descriptor, b"\xff\r")
        terminal.read_until("is not UTF-8")
        terminal.read_until(PROMPT)
        terminal.type("hello\r")
        terminal.read_until("[hello]")
    with conversation(tmp_path, server.generate, PYTHONIOENCODING="latin-1") as terminal:
        os.write(terminal.descriptor, "caf\u00e9 **\u00e9**\r".encode("latin-1"))
        terminal.read_bytes_until("[caf\u00e9 **\u00e9**]".encode("latin-1"))
    assert [turns[-1][1] for turns in server.asked] == ["hello", "caf\u00e9 **\u00e9**"]


@pytest.mark.long
@pytest.mark.parametrize(("options", "shown"), [((), "[bold]"), (("--plain",), "[**bold**]")])
def test_cmd_13_an_answer_is_markdown_unless_plain(options: tuple[str, ...], shown: str, tmp_path: Path) -> None:
    with conversation(tmp_path, Scripted().generate, "--verbose", *options) as terminal:
        terminal.type("**bold**\r")
        terminal.read_until("\x1b[?2004l")
        text = terminal.read_until("request")
    assert shown in text.replace("\x1b[1m", "").replace("\x1b[0m", "")


@pytest.mark.long
def test_cmd_3_ctrl_c_at_the_prompt_asks_once(tmp_path: Path) -> None:
    with conversation(tmp_path, Scripted().generate) as terminal:
        terminal.type("half a li")
        terminal.read_until("half a li")
        for _ in range(2):  # a message in between resets the count
            terminal.wait_until_it_waits()
            terminal.type(CTRL_C)
            terminal.read_until("Ctrl-C again ends; so do /exit and Ctrl-D.")
            terminal.read_until(PROMPT)
            terminal.type("hello\r")
            terminal.read_until("[hello]")
            terminal.read_until(PROMPT)
        for words in ("Ctrl-C again ends", None):
            terminal.wait_until_it_waits()
            terminal.type(CTRL_C)
            if words is not None:
                terminal.read_until(words)
                terminal.read_until(PROMPT)
        assert terminal.process.wait(HANGS_AFTER) == 130


@pytest.mark.long
def test_cmd_2_what_a_server_refuses_for_now_keeps_the_conversation(tmp_path: Path) -> None:
    server = Scripted()

    def generate(request: GenerateRequest, context):
        if len(server.asked) == 1 and not refused.is_set():
            refused.set()
            refuse(context, StatusCode.DEADLINE_EXCEEDED, "too slow", ErrorInfo(reason="TOO_SLOW", domain="imp.v1"))
        yield from server.generate(request, context)

    refused = threading.Event()
    with conversation(tmp_path, generate) as terminal:
        for text in ("one", "two", "/retry"):
            terminal.type(f"{text}\r")
            terminal.read_until("/regenerate asks again" if text == "two" else "[")
            terminal.read_until(PROMPT)
    assert [content for _, content in server.asked[-1]] == ["one", "[one]", "two"]


@pytest.mark.long
def test_cmd_2_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    listen = ("--listen", f"unix://{tmp_path}/imp.sock")
    words = ("call", "chat", "--target", listen[1], "--max-tokens", "8", "--temperature", "0", "--attempts", "1")
    words = (*words, "--verbose")
    (tmp_path / "person").mkdir()
    with server_process(tmp_path, *listen) as first:
        first.wait_until_ready()
        with terminal_session(tmp_path / "person", *IMP, *words) as terminal:
            terminal.read_until(PROMPT)
            terminal.type("Hello!\r")
            terminal.read_until("prompt ")
            first.kill()
            terminal.read_until(PROMPT)
            terminal.type("And now?\r")
            terminal.read_until("waiting for the server: ")
            with server_process(tmp_path, *listen) as second:
                second.wait_until_ready()
                terminal.read_until("8 tokens")
                shown = terminal.read_until(PROMPT)
                assert second.terminate() == 0
            terminal.type(CTRL_C)
    assert "prompt " in shown


@pytest.mark.long
def test_cmd_2_a_full_context_of_a_real_model_goes_on_after_drop(tmp_path: Path) -> None:
    words = ("chat", "-c", "64", "--temperature", "0", "--set", "device.threads=1")
    with terminal_session(tmp_path, *IMP, *words) as terminal:
        terminal.read_until("/help shows more")
        for _ in range(8):
            terminal.read_until(PROMPT)
            terminal.type("What is imp?\r")
            if "context is full" in terminal.read_until("\n") + terminal.read_until("\n"):
                break
        else:
            pytest.fail("the context was never full")
        terminal.read_until(PROMPT)
        terminal.type("/drop-oldest\r")
        terminal.read_until("no longer part of the conversation")


GREEDY = ("--temperature", "0", "--max-tokens", "20", "--set", "device.threads=1")


def _expected(library, *lines: str, system: str = "") -> list[str]:
    """Returns the answers of the same conversation through the Python API."""
    messages = [ChatMessage("system", system)] if system else []
    answers = []
    for line in lines:
        messages.append(ChatMessage("user", line))
        request = GenerationRequest(
            ChatPrompt(tuple(messages)), SamplingOptions(temperature=0), StopOptions(max_tokens=20)
        )
        answers.append("".join(reply.text for reply in library.generate(request)))
        messages.append(ChatMessage("assistant", answers[-1]))
    return answers


def test_lines_of_a_pipe_are_turns_of_one_conversation(imp, library):
    result = imp("chat", *GREEDY, stdin=b"Hello!\n\nWhat is your name?\r\nTell me more.")
    assert result.returncode == 0
    answers = _expected(library, "Hello!", "What is your name?", "Tell me more.")
    assert result.stdout.decode() == "".join(answer.removesuffix("\n") + "\n" for answer in answers)
    assert b"> " not in result.stdout
    assert b"Ctrl-D" not in result.stderr


def test_quit_ends_it_and_the_system_message_is_reported(imp, library):
    result = imp("chat", *GREEDY, "--system", "You are a cat.", stdin=b"Hello!\n /quit \nWho is there?\n")
    assert (result.returncode, result.stdout.decode()) == (
        0,
        _expected(library, "Hello!", system="You are a cat.")[0].removesuffix("\n") + "\n",
    )


def test_cmd_17_the_figures_of_an_answer_come_if_they_are_asked_for(imp):
    plain = imp("chat", *GREEDY[:2], "--max-tokens", "3", *GREEDY[4:], stdin=b"Hello!").stderr.decode()
    assert "— ended by the limit of tokens (--max-tokens).\n" in plain and "first token" not in plain
    words = ("chat", *GREEDY[:2], "--max-tokens", "3", *GREEDY[4:], "--verbose")
    assert "— 3 tokens, " in imp(*words, stdin=b"Hello!").stderr.decode()


@pytest.mark.long
def test_t33_a_model_without_a_template_is_reported_before_anything_is_read(imp, tmp_path):
    demo_with(tmp_path / "m.gguf", b"tokenizer.chat_template", b"tokenizer.chat_untitled")
    result = imp("chat", "-m", "m.gguf", stdin=b"Hello\n")
    assert (result.returncode, result.stdout) == (64, b"")
    assert b"\nimp: error: NO_CHAT_TEMPLATE: " in result.stderr


def test_a_line_that_is_not_utf_8(imp):
    result = imp("chat", *GREEDY, stdin=b"\xff\n")
    assert (result.returncode, result.stdout) == (64, b"")
    assert b"FIELD_INVALID: stdin: byte 0 is not UTF-8" in result.stderr
