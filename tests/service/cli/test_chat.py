"""imp chat through a pipe: it reads lines, prints answers, and keeps the conversation."""

from __future__ import annotations

import pytest

from imp_service.text import ChatMessage, ChatPrompt
from support.command_line import demo_with

GREEDY = ("--temperature", "0", "--max-tokens", "20", "--set", "device.threads=1")


@pytest.fixture(scope="module")
def model():
    import imp_service

    with imp_service.load(None, "device.threads=1") as loaded:
        yield loaded


def _expected(model, *lines: str, system: str = "") -> list[str]:
    """Returns the answers of the same conversation through the Python API."""
    from imp_service import GenerationRequest, SamplingOptions, StopOptions

    messages = [ChatMessage("system", system)] if system else []
    answers = []
    for line in lines:
        messages.append(ChatMessage("user", line))
        request = GenerationRequest(
            ChatPrompt(tuple(messages)), SamplingOptions(temperature=0), StopOptions(max_tokens=20)
        )
        answers.append("".join(reply.text for reply in model.generate(request)))
        messages.append(ChatMessage("assistant", answers[-1]))
    return answers


def test_lines_of_a_pipe_are_turns_of_one_conversation(imp, model):
    result = imp("chat", *GREEDY, stdin=b"Hello!\n\nWhat is your name?\r\nTell me more.")
    assert result.returncode == 0
    answers = _expected(model, "Hello!", "What is your name?", "Tell me more.")
    assert result.stdout.decode() == "".join(answer.removesuffix("\n") + "\n" for answer in answers)
    assert b"> " not in result.stdout
    assert b"Ctrl-D" not in result.stderr


def test_quit_ends_it_and_the_system_message_is_reported(imp, model):
    result = imp("chat", *GREEDY, "--system", "You are a cat.", stdin=b"Hello!\n /quit \nWho is there?\n")
    assert (result.returncode, result.stdout.decode()) == (
        0,
        _expected(model, "Hello!", system="You are a cat.")[0].removesuffix("\n") + "\n",
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
