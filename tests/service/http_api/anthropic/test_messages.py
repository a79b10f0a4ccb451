"""Messages over HTTP, compared with the same chat completion: content, stop reasons, usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from imp_service.api.replies import Chunk, Finished, StopMatch, Usage
from imp_service.api.tool_calls import ToolCallDelta
from imp_service.core import Error
from imp_service.http_api.anthropic.replies import Message
from support.servers.http_served import DEMO_MODEL, HttpServed
from support.servers.messages_served import (
    CHAT_TOOLS,
    COUNT,
    PATH,
    SCHEMA,
    SPOKEN,
    TOOLS,
    answer,
    comparable,
    said,
    serve_template,
)
from support.text.tool_templates import HERMES

TEXTS = ("Hello", "日本", "A smile 😀 is", "Once upon a time")


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("templates"), HERMES, "limits.max_context=512") as it:
        yield it


@pytest.mark.few(2)
@pytest.mark.parametrize("text", TEXTS)
def test_msg_1_msg_2_a_message_is_the_chat_completion(calling: HttpServed, text: str) -> None:
    options: dict[str, Any] = {"seed": 3, "temperature": 0.9, "top_p": 0.9, "top_k": 50, "max_tokens": 12}
    chat = calling.chat([{"role": "system", "content": "Be brief."}, *said(text)], **options)
    found = answer(calling, text, system="Be brief.", **options)
    assert "".join(block["text"] for block in found["content"]) == chat.choice["message"]["content"]
    assert (found["model"], found["role"], found["type"]) == (DEMO_MODEL, "assistant", "message")
    reasons = {"stop": "end_turn", "length": "max_tokens"}
    assert found["stop_reason"] == reasons[chat.choice["finish_reason"]] and found["stop_sequence"] is None
    usage, known = found["usage"], chat.json["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == known["prompt_tokens"]
    assert usage["output_tokens"] == known["completion_tokens"]
    other = answer(calling, text, system="Be long.", **options)
    assert comparable(other) != comparable(found)


def test_msg_1_the_options_of_imp_have_their_names(calling: HttpServed) -> None:
    plain = answer(calling, temperature=0)
    [(token, *_)] = [calling.client.post("/tokenize", {"prompt": "H", "add_special_tokens": False}).json["tokens"]]
    biased = answer(calling, temperature=0, logit_bias={str(token): 100}, min_tokens=3, max_tokens=3)
    assert biased["content"][0]["text"] == "HHH" != plain["content"][0]["text"]
    chosen = answer(calling, structured_outputs={"choice": ["yes", "no"]})
    assert chosen["content"][0]["text"] in ("yes", "no")


def test_msg_2_a_stop_sequence_is_named(calling: HttpServed) -> None:
    whole = answer(calling, temperature=0, max_tokens=20)["content"][0]["text"]
    found = answer(calling, temperature=0, max_tokens=20, stop_sequences=["nosuch", whole[3:5]])
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", whole[3:5])
    assert found["content"] == [{"type": "text", "text": whole[:3]}]


def test_msg_2_the_end_of_the_context_is_a_reason(calling: HttpServed) -> None:
    found = answer(calling, "the " * 480, ignore_eos=True, max_tokens=400, temperature=0)
    assert found["stop_reason"] == "model_context_window_exceeded"


def test_msg_2_no_output_is_no_block(calling: HttpServed) -> None:
    found = answer(calling, max_tokens=0)
    assert (found["content"], found["stop_reason"], found["usage"]["output_tokens"]) == ([], "max_tokens", 0)


def test_msg_2_msg_5_reasoning_text_and_a_call_are_one_block_each(calling: HttpServed) -> None:
    # A call alone would be allowed too.
    tokens = map(calling.served.state.model.tokenizer.token_bytes, range(2047))
    begins_call = {str(i): -100 for i, token in enumerate(tokens) if token.startswith((b"<to", b"to", b"o"))}
    asked: dict[str, Any] = {"tools": TOOLS, "grammar": SPOKEN, "temperature": 0, "max_tokens": 200}
    found = answer(calling, "Rain?", logit_bias=begins_call, max_chunk_tokens=1, **asked)
    thought, text, call = found["content"]
    assert (thought["type"], thought["thinking"].strip()) == ("thinking", "Hm.") and thought["signature"]
    assert (text["type"], text["text"].strip()) == ("text", "Yes:")
    assert (call["type"], call["name"], call["input"], found["stop_reason"]) == ("tool_use", "stop", {}, "tool_use")
    assert 0 < found["usage"]["output_tokens_details"]["thinking_tokens"] < found["usage"]["output_tokens"]


def test_msg_2_a_cut_call_has_no_input(calling: HttpServed) -> None:
    body = {"messages": said("Rain?"), "tools": TOOLS[:1], "tool_choice": {"type": "any"}, "seed": 1, "max_tokens": 30}
    found = calling.client.post(PATH, body).json
    assert found["stop_reason"] == "max_tokens"
    assert [(block["type"], block["input"]) for block in found["content"]] == [("tool_use", {})]


def test_msg_2_text_after_a_call_may_come_with_the_end_of_the_call() -> None:
    """A reply merges several tokens: the rest of the arguments, and the text that follows them."""
    message = Message("msg_1", DEMO_MODEL)
    begun, rest = ToolCallDelta(0, "call_1", "stop", "{"), ToolCallDelta(0, arguments="}")
    again = ToolCallDelta(1, "call_2", "stop", "{}")
    message.take(Chunk(0, 0, [0], "", [], [], tool_calls=[begun]))
    message.take(Chunk(0, 1, [0], "Done", [], [], reasoning="Hm", tool_calls=[rest, again]))
    message.take(Finished(0, "stop", StopMatch(token_id=1), "", Usage(1, 0, 2)))
    kinds = [block["type"] for block in message.fields()["content"]]
    assert kinds == ["tool_use", "thinking", "text", "tool_use"]
    assert message.fields()["stop_reason"] == "tool_use"


def test_msg_2_an_aborted_message_is_an_error() -> None:
    with pytest.raises(Error):
        Message("msg_1", DEMO_MODEL).take(Finished(0, "aborted", None, ""))


CHOICES = [
    ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ({"type": "any", "disable_parallel_tool_use": True}, "required"),
    ({"type": "auto"}, "auto"),
    ({"type": "none"}, "none"),
]


@pytest.mark.parametrize(("choice", "of_chat"), CHOICES, ids=["tool", "any", "auto", "none"])
def test_msg_5_a_choice_of_tools_means_what_it_means_in_chats(calling: HttpServed, choice: Any, of_chat: Any) -> None:
    options: dict[str, Any] = {"seed": 3, "temperature": 0.5, "max_tokens": 120}
    is_parallel = not choice.get("disable_parallel_tool_use", False)
    chat = calling.chat(
        "Rain?", tools=CHAT_TOOLS, tool_choice=of_chat, parallel_tool_calls=is_parallel, **options
    ).choice["message"]
    found = answer(calling, "Rain?", tools=TOOLS, tool_choice=choice, **options)
    calls = [block for block in found["content"] if block["type"] == "tool_use"]
    known = [(each["id"], each["function"]["name"]) for each in chat.get("tool_calls", [])]
    assert [(each["id"], each["name"]) for each in calls] == known
    assert (len(calls) == 1) or choice["type"] in ("auto", "none")
    for call in calls:
        jsonschema.validate(call["input"], SCHEMA if call["name"] == "weather" else {})
    # With `none` the prompt is that of a request without tools.
    plain = calling.client.post(COUNT, {"messages": said("Rain?")}).json["input_tokens"]
    counted = calling.client.post(COUNT, {"messages": said("Rain?"), "tools": TOOLS, "tool_choice": choice}).json
    assert (counted["input_tokens"] == plain) == (choice["type"] == "none")


def test_msg_6_the_output_fits_the_schema_of_its_format(calling: HttpServed) -> None:
    schema = {"type": "object", "properties": {"sky": {"enum": ["red", "blue"]}}, "required": ["sky"]}
    output = {"format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}}
    found = answer(calling, output_config=output, temperature=1.5, max_tokens=100)
    jsonschema.validate(json.loads(found["content"][0]["text"]), schema)


def test_msg_9_the_tokens_of_the_prompt_are_those_that_are_counted(calling: HttpServed) -> None:
    long = "the cat sat on the mat, and " * 12
    asked: dict[str, Any] = {"messages": said(long), "system": "Be brief.", "tools": TOOLS}
    generated = {**asked, "max_tokens": 1, "cache_salt": "of this test"}
    counted = calling.client.post(COUNT, asked).json["input_tokens"]
    first, second = (calling.client.post(PATH, generated).json["usage"] for _ in range(2))
    assert first["input_tokens"] == counted and first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > counted / 2
    assert second["input_tokens"] + second["cache_read_input_tokens"] == counted
    (started, *_) = calling.client.stream(PATH, generated).objects
    assert started["message"]["usage"]["cache_read_input_tokens"] == second["cache_read_input_tokens"]
    fewer = calling.client.post(COUNT, {**asked, "tools": TOOLS[:1]}).json["input_tokens"]
    assert fewer < counted


def test_msg_9_a_prompt_beyond_the_context_is_counted(calling: HttpServed) -> None:
    asked = {"messages": said("the " * 2000)}
    assert calling.client.post(COUNT, asked).json["input_tokens"] > 2000
    reply = calling.client.post(PATH, {**asked, "max_tokens": 1})
    assert reply.status == 400 and reply.error["message"].startswith("prompt is too long: ")
