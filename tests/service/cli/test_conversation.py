"""A conversation keeps its turns, whatever happens to an answer; `imp chat` and `imp call chat` hold the same one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc import StatusCode

from imp_service.cli.conversation import ChatAnswer, Conversation, Turn, TurnFailed
from imp_service.cli.failure import CommandError
from imp_service.pb.inference_pb2 import GenerateRequest
from support.scripted_server import refuse, scripted_server, story
from support.server_process import server_process
from support.terminal_session import CTRL_C, terminal_session

IMP = (sys.executable, "-m", "imp_service")
FULL = CommandError("CONTEXT_TOO_LONG", "a prompt of 90 tokens exceeds the context of 64")
BUSY = CommandError("QUEUE_FULL", "256 requests wait")


class Script:
    """Answers by what it was told: a text, or an exception; holds at most `room` turns."""

    def __init__(self, *answers: ChatAnswer | Exception | str, room: int = 1000) -> None:
        self._answers = list(answers)
        self._room = room
        self.asked: list[list[str]] = []

    def answer(self, turns: Sequence[Turn]) -> ChatAnswer:
        self.asked.append([turn.content for turn in turns])
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
        if len(turns) > self._room:
            raise TurnFailed(FULL, is_full=True)
        found = self._answers.pop(0) if self._answers else f"to {turns[-1].content}"
        if isinstance(found, Exception):
            raise TurnFailed(found, is_full=False)
        return found if isinstance(found, ChatAnswer) else ChatAnswer(found)


def held(responder: Script, *messages: str, drops_oldest: bool = False) -> list[str]:
    conversation = Conversation(responder, drops_oldest=drops_oldest, is_interactive=True)
    conversation.hold(messages)
    return [turn.content for turn in conversation.turns]


def test_cmd_2_a_full_context_says_so_and_the_message_waits_for_drop(capfd) -> None:
    responder = Script(room=3)
    assert held(responder, "a", "b", "c") == ["a", "to a", "b", "to b", "c"]
    err = capfd.readouterr().err
    assert err == (
        "— the context is full: a prompt of 90 tokens exceeds the context of 64.\n"
        "— the message waits: /drop removes the oldest messages until it fits, and asks again.\n"
    )
    assert held(responder, "a", "b", "c", "/drop") == ["b", "to b", "c", "to c"]
    assert "the oldest message and its answer are no longer part of the conversation" in capfd.readouterr().err


def test_cmd_2_as_many_as_it_takes_are_dropped_with_a_notice(capfd) -> None:
    responder = Script()
    messages = ["a", "b", "c", "d"]
    conversation = Conversation(responder, drops_oldest=True, is_interactive=False)
    conversation.hold(messages)
    responder._room = 3
    conversation.say("e")
    assert responder.asked[-1] == ["d", "to d", "e"]
    assert capfd.readouterr().err == "— the 3 oldest messages are no longer part of the conversation, 1 remain.\n"


def test_cmd_2_a_message_that_is_too_long_by_itself_is_told_and_replaced(capfd) -> None:
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
        "— the message waits: /retry asks again, another message takes its place.",
    ]


def test_cmd_3_a_stopped_answer_stays_and_an_empty_one_does_not(capfd) -> None:
    responder = Script(ChatAnswer("Once", is_stopped=True), ChatAnswer("", is_stopped=True))
    assert held(responder, "a", "b", "c") == ["a", "Once", "c", "to c"]
    assert responder.asked[-1] == ["a", "Once", "c"]
    err = capfd.readouterr().err
    assert "what came of the answer stays" in err and "stopped before an answer came" in err


def test_cmd_2_retry_drop_and_clear() -> None:
    responder = Script("one", "two", "three")
    assert held(responder, "a", "/retry") == ["a", "two"]
    assert held(Script(), "a", "b", "c", "d", "/drop 2") == ["c", "to c", "d", "to d"]
    assert held(Script(), "a", "b", "/clear") == []
    assert held(Script(), "a", "/quit", "b") == ["a", "to a"]


UNKNOWN = ["/qiut", "/exit", "/drop many", "/drop 0", "/clear all", "/Quit"]


@pytest.mark.parametrize("word", UNKNOWN)
def test_cmd_4_an_unknown_word_is_not_sent(word: str, capfd) -> None:
    responder = Script()
    assert held(responder, word) == []
    assert responder.asked == []
    assert capfd.readouterr().err.startswith(f"— {word}: unknown command, expected /help, ")
    with pytest.raises(CommandError, match="unknown command"):
        Conversation(responder, drops_oldest=False, is_interactive=False).hold([word])


SENT = {"//quit": "/quit", "/usr/bin is what?": "/usr/bin is what?", "/ 2": "/ 2", "a\n/b": "a\n/b"}


@pytest.mark.parametrize(("typed", "sent"), SENT.items())
def test_cmd_4_what_begins_like_a_command_can_be_sent(typed: str, sent: str) -> None:
    responder = Script()
    held(responder, typed)
    assert responder.asked == [[sent]]


class Scripted:
    """A server that writes down what it is asked, and answers with what was asked last."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str]]] = []

    def generate(self, request: GenerateRequest, context):
        turns = [(message.role, message.content) for message in request.chat.messages]
        self.asked.append(turns)
        yield from story(f"[{turns[-1][1]}]")


@contextmanager
def conversation(folder: Path, generate):
    with (
        scripted_server(Generate=generate) as address,
        terminal_session(folder, *IMP, "call", "chat", "--target", address) as terminal,
    ):
        terminal.read_until("> ")
        yield terminal


def test_cmd_4_pasted_lines_are_one_message(tmp_path: Path) -> None:
    server = Scripted()
    with conversation(tmp_path, server.generate) as terminal:
        terminal.type("\x1b[200~one\ntwo\n\nthree\x1b[201~\r")
        terminal.read_until("three]")
        terminal.read_until("> ")
        terminal.type("four\r")
        terminal.read_until("[four]")
    contents = [[content for _, content in turns] for turns in server.asked]
    assert contents == [["one\ntwo\n\nthree"], ["one\ntwo\n\nthree", "[one\ntwo\n\nthree]", "four"]]


def test_cmd_3_ctrl_c_at_the_prompt_asks_once(tmp_path: Path) -> None:
    with conversation(tmp_path, Scripted().generate) as terminal:
        terminal.type("half a li")
        terminal.read_until("half a li")
        for _ in range(2):  # a message between them begins anew
            terminal.wait_until_it_waits()
            terminal.type(CTRL_C)
            terminal.read_until("Ctrl-C again ends, so do /quit and Ctrl-D.")
            terminal.read_until("> ")
            terminal.type("hello\r")
            terminal.read_until("[hello]")
            terminal.read_until("> ")
        for words in ("Ctrl-C again ends", None):
            terminal.wait_until_it_waits()
            terminal.type(CTRL_C)
            if words is not None:
                terminal.read_until(words)
                terminal.read_until("> ")
        assert terminal.process.wait(60) == 130


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
            terminal.read_until("/retry asks again" if text == "two" else "[")
            terminal.read_until("> ")
    assert [content for _, content in server.asked[-1]] == ["one", "[one]", "two"]


def test_cmd_2_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    listen = ("--listen", f"unix://{tmp_path}/imp.sock")
    words = ("call", "chat", "--target", listen[1], "--max-tokens", "8", "--temperature", "0", "--attempts", "1")
    (tmp_path / "person").mkdir()
    with server_process(tmp_path, *listen) as first:
        first.wait_until_ready()
        with terminal_session(tmp_path / "person", *IMP, *words) as terminal:
            terminal.read_until("> ")
            terminal.type("Hello!\r")
            terminal.read_until("prompt ")
            first.kill()
            terminal.read_until("> ")
            terminal.type("And now?\r")
            terminal.read_until("waiting for the server: ")
            with server_process(tmp_path, *listen) as second:
                second.wait_until_ready()
                terminal.read_until("8 tokens")
                shown = terminal.read_until("> ")
                assert second.terminate() == 0
            terminal.type(CTRL_C)
    assert "prompt " in shown


def test_cmd_2_a_full_context_of_a_real_model_goes_on_after_drop(tmp_path: Path) -> None:
    words = ("chat", "-c", "64", "--temperature", "0", "--set", "device.threads=1")
    with terminal_session(tmp_path, *IMP, *words) as terminal:
        terminal.read_until("/help shows more")
        for _ in range(8):
            terminal.read_until("> ")
            terminal.type("What is imp?\r")
            if "context is full" in terminal.read_until("\n") + terminal.read_until("\n"):
                break
        else:
            pytest.fail("the context was never full")
        terminal.read_until("> ")
        terminal.type("/drop\r")
        terminal.read_until("no longer part of the conversation")
