"""The history of a request: it becomes the conversation that it would be in a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from imp_service.config import read_settings
from imp_service.generation.text_side import REASONING_BUDGET
from imp_service.http_api.anthropic.fields import MESSAGES
from imp_service.http_api.anthropic.requests import read_message
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatMessage, ChatPrompt
from support.servers.http_served import HttpServed
from support.servers.messages_served import CHAT_TOOLS, COUNT, PATH, TOOLS, answer, said, serve_template
from support.text.tool_templates import HERMES

CALL = {"type": "tool_use", "id": "abc", "name": "weather", "input": {"city": "Oslo", "days": 1}}
STOP = {"type": "tool_use", "id": "def", "name": "stop", "input": {}}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "of another server"}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("templates"), HERMES) as it:
        yield it


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def result(call: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": [text("Will ", cache_control={"type": "ephemeral"}), text("it?")]},
    {"role": "assistant", "content": [THOUGHT, text("Let me see."), CALL, STOP]},
    {"role": "user", "content": [result("abc", "It rains."), result("def", [text("No.")], is_error=True), text("So?")]},
    {"role": "assistant", "content": "It rains."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Sure?"},
]
CALLS = [
    {"id": "abc", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 1}'}},
    {"id": "def", "type": "function", "function": {"name": "stop", "arguments": "{}"}},
]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Will it?"},
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "abc", "name": "weather", "content": "It rains."},
    {"role": "tool", "tool_call_id": "def", "name": "stop", "content": "Error: No."},
    {"role": "user", "content": "So?"},
    {"role": "assistant", "content": "It rains."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Sure?"},
]


def test_msg_4_blocks_are_the_messages_of_a_chat(http: HttpServed) -> None:
    options: dict[str, Any] = {"seed": 3, "temperature": 1, "max_tokens": 20}
    chat = http.chat(CHAT, tools=CHAT_TOOLS, **options)
    system = [text("Be "), text("brief.")]
    found = answer(http, HISTORY, system=system, tools=TOOLS, **options)
    assert "".join(block["text"] for block in found["content"]) == chat.choice["message"]["content"]
    counted = http.client.post(COUNT, {"messages": HISTORY, "system": system, "tools": TOOLS}).json["input_tokens"]
    assert counted == chat.json["usage"]["prompt_tokens"]
    # Each block is in the prompt.
    for i, message in enumerate(HISTORY):
        for j in range(len(message["content"])) if isinstance(message["content"], list) else ():
            blocks = [*message["content"][:j], *message["content"][j + 1 :]]
            fewer = [*HISTORY[:i], {**message, "content": blocks}, *HISTORY[i + 1 :]]
            asked = {"messages": fewer, "system": system, "tools": TOOLS}
            assert http.client.post(COUNT, asked).json["input_tokens"] < counted, message["content"][j]


def conversation(messages: list[dict[str, Any]], **fields: Any) -> tuple[ChatMessage, ...]:
    """Returns the messages that the template gets."""
    served = ServedModel(read_settings(None, []).settings, 2048, 2048, 512, ("imp-demo",))
    body = {"messages": messages, "max_tokens": 5, **fields}
    prompt = read_message(Reading(body, MESSAGES, ignores_unknown=False), served, Caller()).requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages


def test_msg_4_consecutive_messages_of_one_role_are_one_turn() -> None:
    user, assistant = conversation(
        [
            {"role": "user", "content": "One."},
            {"role": "user", "content": [text("Two.")]},
            {"role": "assistant", "content": [THOUGHT]},
            {"role": "assistant", "content": [text("Three."), CALL]},
        ]
    )
    assert (user.role, user.content) == ("user", "One.\n\nTwo.")
    assert (assistant.content, assistant.reasoning_content) == ("Three.", "Hm")
    assert '"weather"' in assistant.tool_calls_json


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        ("No file.", True, "Error: No file."),
        ("No file.", False, "No file."),
        ("error: no file", True, "error: no file"),
        ([text("No"), text(" file.")], True, "Error: No file."),
        ("", True, "Error: "),
        (None, False, ""),
    ],
)
def test_msg_4_the_model_reads_that_a_call_failed(content: Any, is_error: bool, expected: str) -> None:
    *_, tool = conversation([*HISTORY[:2], {"role": "user", "content": [result("abc", content, is_error=is_error)]}])
    assert (tool.role, tool.content, tool.tool_call_id, tool.name) == ("tool", expected, "abc", "weather")


def test_msg_4_what_differs_in_every_request_is_not_in_the_prompt() -> None:
    """Claude Code begins its system message so."""
    system = [text("x-anthropic-billing-header: cc_version=1; cch=0a1;"), text("You are an agent.")]
    first, _ = conversation(said("Hello"), system=system)
    assert first.content == "You are an agent."


def test_msg_4_reasoning_that_nobody_can_read_is_ignored(http: HttpServed) -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    history = [HISTORY[0], {"role": "assistant", "content": [redacted, text("Yes.")]}, HISTORY[-1]]
    reply = http.client.post(PATH, {"messages": history, "max_tokens": 1})
    assert reply.headers["imp-ignored"] == '"messages[1].content[0].data"'
    plain = [HISTORY[0], {"role": "assistant", "content": [text("Yes.")]}, HISTORY[-1]]
    counts = [http.client.post(COUNT, {"messages": each}).json["input_tokens"] for each in (history, plain)]
    assert counts[0] == counts[1]


def test_msg_4_the_answer_continues_a_last_message_of_the_assistant(http: HttpServed) -> None:
    begun = [*said("Tell me a story."), {"role": "assistant", "content": "Once upon"}]
    found = answer(http, begun, temperature=0, max_tokens=8)
    chat = http.chat(begun, temperature=0, max_tokens=8, continue_final_message=True)
    assert found["content"][0]["text"] == chat.choice["message"]["content"]
    apart = http.chat([*begun, *said("")], temperature=0, max_tokens=8)
    assert apart.choice["message"]["content"] != found["content"][0]["text"]


def test_msg_6_thinking_is_a_variable_of_the_template(tmp_path_factory: pytest.TempPathFactory) -> None:
    template = (
        "{{ enable_thinking }}{{ reasoning_effort }}{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    with serve_template(tmp_path_factory.mktemp("variables"), template) as http:
        rows: list[tuple[dict[str, Any], str]] = [
            ({}, ""),
            ({"thinking": {"type": "disabled"}}, "False"),
            ({"thinking": {"type": "adaptive", "display": "summarized"}}, "True"),
            ({"output_config": {"effort": "low"}}, "low"),
        ]
        for fields, shown in rows:
            asked = {"messages": said("Hello"), **fields}
            plain = {"prompt": f"{shown}Hello", "add_special_tokens": False}
            counted = http.client.post(COUNT, asked).json["input_tokens"]
            assert counted == http.client.post("/tokenize", plain).json["count"], fields
            assert "imp-ignored" not in http.client.post(PATH, {**asked, "max_tokens": 1}).headers


def test_msg_6_a_wish_about_reasoning_that_no_template_reads_is_named(http: HttpServed) -> None:
    asked = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
    reply = http.client.post(PATH, {"messages": said("Hello"), "max_tokens": 1, **asked})
    assert reply.headers["imp-ignored"] == '"output_config.effort", "thinking"'


def test_msg_6_bud_5_the_budget_of_thinking_bounds_the_reasoning() -> None:
    body = {"messages": said("Hello"), "max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 7}}
    for reasons in (True, False):
        capable = (REASONING_BUDGET,) if reasons else ()
        served = ServedModel(read_settings(None, []).settings, 2048, 2048, 512, ("imp-demo",), capabilities=capable)
        parsed = read_message(Reading(body, MESSAGES, ignores_unknown=False), served, Caller())
        assert parsed.requests[0].max_reasoning_tokens == (7 if reasons else None)
        assert ("thinking.budget_tokens" in parsed.reading.ignored) != reasons
