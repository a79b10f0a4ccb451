"""Responses over HTTP: through OpenAI's Python client, and compared with the same chat completion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from imp_service.api.replies import Chunk, Finished, Usage
from imp_service.api.tool_calls import ToolCallDelta
from imp_service.config import read_settings
from imp_service.http_api.openai.fields import RESPONSES
from imp_service.http_api.openai.logprobs import TokenTexts
from imp_service.http_api.openai.replies import Head
from imp_service.http_api.openai.response_requests import read_response
from imp_service.http_api.openai.responses import Response
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.serving.served_model import ServedModel
from imp_service.text.tokens.detokenizer import TokenTable
from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.servers.served_models import scripted
from support.text.tool_templates import HERMES

PATH = "/v1/responses"
TEXTS = ("Hello", "日本", "A smile 😀 is", "Once upon a time")
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "name": "weather", "description": "Rain?", "parameters": PARAMETERS, "strict": True},
    {"type": "function", "name": "stop", "parameters": {"type": "object", "additionalProperties": False}},
]
CHAT_TOOLS = [
    {"type": "function", "function": {name: each for name, each in tool.items() if name != "type"}} for tool in TOOLS
]
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "stop"}]}
CALL = {"type": "function_call", "call_id": "abc", "name": "weather", "arguments": '{"city": "Oslo", "days": 1}'}


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory, HERMES) as it:
        yield it


def serve_template(factory: pytest.TempPathFactory, template: str) -> Any:
    path: Path = factory.mktemp("templates") / "chat.jinja"
    path.write_text(template)
    return serve_http(f"model.overrides.chat_template={path}", "limits.max_context=512")


def client_of(http: HttpServed) -> OpenAI:
    return OpenAI(base_url=http.url, api_key="any", max_retries=0)


def respond(http: HttpServed, **fields: Any) -> dict[str, Any]:
    """Returns a whole response, and checks that the streamed one equals it."""
    fields = {"seed": 0, **fields}
    reply = http.client.post(PATH, fields)
    assert reply.status == 200, reply.content
    events = http.client.stream(PATH, fields).objects
    check_sequence(events)
    assert comparable(events[-1]["response"]) == comparable(reply.json)
    return dict(reply.json)


def comparable(response: dict[str, Any]) -> dict[str, Any]:
    """Removes names and times, and what only the first of two equal calls has."""
    output = [{**item, "id": None} for item in response["output"]]
    return {**response, "id": None, "created_at": None, "output": output, "usage": response["usage"]["total_tokens"]}


def check_sequence(events: list[dict[str, Any]]) -> None:
    """Checks that the events build each item up to its state in the last event."""
    assert [each["type"] for each in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1]["response"]
    assert events[-1]["type"] == f"response.{final['status']}"
    for event in events[:2]:
        assert (event["response"]["id"], event["response"]["status"]) == (final["id"], "in_progress")
        assert (event["response"]["output"], event["response"]["usage"]) == ([], None)
    first = 2
    for index, item in enumerate(final["output"]):
        of_item = [each for each in events[2:-1] if each["output_index"] == index]
        assert of_item == events[first : first + len(of_item)]
        first += len(of_item)
        check_item(of_item, item)
    assert first == len(events) - 1


def check_item(events: list[dict[str, Any]], item: dict[str, Any]) -> None:
    kinds = [each["type"].removeprefix("response.") for each in events]
    assert (kinds[0], kinds[-1]) == ("output_item.added", "output_item.done")
    assert events[0]["item"]["status"] == "in_progress" and events[-1]["item"] == item
    assert {each["item_id"] for each in events[1:-1]} == {item["id"]}
    if item["type"] == "function_call":
        assert kinds[-2] == "function_call_arguments.done" and events[-2]["arguments"] == item["arguments"]
        assert set(kinds[1:-2]) <= {"function_call_arguments.delta"} and events[0]["item"]["arguments"] == ""
        assert "".join(each["delta"] for each in events[1:-2]) == item["arguments"]
        return
    (part,) = item["content"]
    assert events[0]["item"]["content"] == [] and events[1]["part"] == {**part, "text": "", **empty_of(part)}
    assert (kinds[1], *kinds[-3:-1]) == ("content_part.added", f"{part['type']}.done", "content_part.done")
    assert set(kinds[2:-3]) == {f"{part['type']}.delta"}
    assert events[-3]["text"] == part["text"] and events[-2]["part"] == part
    assert "".join(each["delta"] for each in events[2:-3]) == part["text"]
    scores = [entry for each in events[2:-3] for entry in each.get("logprobs", [])]
    assert [entry["token"] for entry in scores] == [entry["token"] for entry in part.get("logprobs", [])]
    assert scores == events[-3].get("logprobs", [])


def empty_of(part: dict[str, Any]) -> dict[str, Any]:
    return {"logprobs": []} if "logprobs" in part else {}


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_oai_9_the_text_is_that_of_the_chat(http: HttpServed, seed: int) -> None:
    text = TEXTS[seed % len(TEXTS)]
    options: dict[str, Any] = {"seed": seed, "temperature": seed / 4, "top_p": 0.9, "stop": ["."], "top_logprobs": 2}
    most = (0, 1, 7, 60)[seed % 4]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    chat = http.chat(messages, max_tokens=most, logprobs=True, **options)
    found = respond(http, input=text, instructions="Be brief.", max_output_tokens=most, **options)
    (item,) = found["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", chat.choice["message"]["content"])
    assert item["content"][0]["logprobs"] == chat.choice["logprobs"]["content"]
    is_cut = chat.choice["finish_reason"] == "length"
    assert found["status"] == item["status"] == ("incomplete" if is_cut else "completed")
    assert found["incomplete_details"] == ({"reason": "max_output_tokens"} if is_cut else None)
    usage = chat.json["usage"]
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"], found["usage"]["total_tokens"]) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["total_tokens"],
    )


@pytest.mark.long
def test_oai_9_items_are_the_messages_of_a_chat(calling: HttpServed) -> None:
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    answer = {"type": "output_text", "text": "Let me see.", "annotations": []}
    items: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Will "}, {"type": "input_text", "text": "it?"}]},
        reasoning,
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [answer]},
        {**CALL, "id": "fc_1", "status": "completed"},
        {**CALL, "call_id": "def", "name": "stop", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "abc", "output": "It rains."},
        {"type": "function_call_output", "call_id": "def", "output": [{"type": "input_text", "text": "No."}]},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Sure?"},
    ]
    calls = [
        {"id": each["call_id"], "type": "function", "function": {"name": each["name"], "arguments": each["arguments"]}}
        for each in items[4:6]
    ]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Will it?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "abc", "content": "It rains."},
        {"role": "tool", "tool_call_id": "def", "content": "No."},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Sure?"},
    ]
    options: dict[str, Any] = {"seed": 3, "temperature": 1}
    chat = calling.chat(messages, tools=CHAT_TOOLS, max_tokens=20, **options)
    found = respond(calling, input=items, tools=TOOLS, max_output_tokens=20, **options)
    assert found["usage"]["input_tokens"] == chat.json["usage"]["prompt_tokens"]
    assert text_of(found) == chat.choice["message"]["content"]
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    summed = respond(calling, input=[*items[:2], summary, *items[3:]], tools=TOOLS, max_output_tokens=20, **options)
    assert comparable(summed) == comparable(found)
    # Each part of the conversation is in the prompt.
    for i in range(len(items)):
        fewer = respond(calling, input=[*items[:i], *items[i + 1 :]], tools=TOOLS, max_output_tokens=1)
        assert fewer["usage"]["input_tokens"] < found["usage"]["input_tokens"], items[i]


@pytest.mark.long
def test_oai_9_the_request_is_repeated(http: HttpServed) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 16,
        "metadata": {"k" * 64: "v" * 512, **{str(i): "" for i in range(15)}},  # as much as OpenAI allows
        "temperature": 0.5,
        "top_p": 0.5,
        "user": "someone",
        "reasoning": {"effort": "low", "summary": None},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "integer"}}, "verbosity": "medium"},
    }
    found = respond(http, input="Hello", model=DEMO_MODEL, store=False, **asked)
    assert {name: found[name] for name in asked} == asked
    assert (found["model"], found["tool_choice"], found["tools"]) == (DEMO_MODEL, "auto", [])
    plain = respond(http, input="Hello", max_output_tokens=1)
    assert (plain["text"]["format"], plain["metadata"], plain["temperature"]) == ({"type": "text"}, {}, None)


def test_oai_9_nothing_is_stored_or_encrypted_if_asked_for(http: HttpServed) -> None:
    plain = respond(http, input="Hello", max_output_tokens=3)
    asked = respond(http, input="Hello", max_output_tokens=3, store=True, include=["reasoning.encrypted_content"])
    assert "store" not in plain and asked["store"] is False
    assert comparable({**asked, "store": None}) == comparable({**plain, "store": None})


def test_oai_9_the_effort_is_a_variable_of_the_template(tmp_path_factory: pytest.TempPathFactory) -> None:
    template = "{{ reasoning_effort }}{% for message in messages %}{{ message.content }}{% endfor %}"
    with serve_template(tmp_path_factory, template) as http:
        counts = [
            respond(http, input="Hello", max_output_tokens=1, reasoning=each)["usage"]["input_tokens"]
            for each in ({"effort": "low"}, {"effort": "none"}, None)
        ]
        prompts = [
            http.client.post("/tokenize", {"prompt": f"{each}Hello", "add_special_tokens": False}).json["count"]
            for each in ("low", "none", "")
        ]
        assert counts == prompts


class Animal(BaseModel):
    name: str
    legs: int


@pytest.mark.long
def test_oai_9_the_client_creates_streams_and_parses(http: HttpServed) -> None:
    with client_of(http) as client:
        asked: dict[str, Any] = {"model": DEMO_MODEL, "input": "Hello", "temperature": 0.7}
        for seed in range(3):
            extra = {"seed": seed}
            parsed = client.responses.parse(text_format=Animal, extra_body=extra, **asked)
            assert isinstance(parsed.output_parsed, Animal)
            with client.responses.stream(text_format=Animal, extra_body=extra, **asked) as stream:
                kinds = {event.type for event in stream}
                final = stream.get_final_response()
            assert final.output_parsed == parsed.output_parsed and final.output_text == parsed.output_text
            assert {"response.output_text.delta", "response.output_text.done", "response.completed"} <= kinds
        whole = client.responses.create(max_output_tokens=8, extra_body={"seed": 7}, **asked)
        chunks = client.responses.create(max_output_tokens=8, extra_body={"seed": 7}, stream=True, **asked)
        text = "".join(each.delta for each in chunks if each.type == "response.output_text.delta")
        assert text == whole.output_text != "" and whole.id == f"resp_{whole._request_id}"


def test_oai_9_the_asynchronous_client(http: HttpServed) -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=http.url, api_key="any", max_retries=0) as client:
            whole = await client.responses.create(model=DEMO_MODEL, input="Hi", temperature=0, max_output_tokens=400)
            async with client.responses.stream(
                model=DEMO_MODEL, input="Hi", temperature=0, max_output_tokens=400
            ) as stream:
                final = await stream.get_final_response()
            assert final.output_text == whole.output_text

    asyncio.run(run())


@pytest.mark.long
def test_oai_9_a_function_is_called_and_its_output_goes_back(calling: HttpServed) -> None:
    with client_of(calling) as client:
        said: list[Any] = [{"role": "user", "content": "Will it rain?"}]
        asked: dict[str, Any] = {"model": DEMO_MODEL, "tools": TOOLS, "extra_body": {"seed": 3}, "temperature": 0.5}
        choice: Any = {"type": "function", "name": "weather"}
        whole = client.responses.create(input=said, tool_choice=choice, **asked)
        (call,) = whole.output
        assert call.type == "function_call" and (call.name, call.status) == ("weather", "completed")
        jsonschema.validate(json.loads(call.arguments), PARAMETERS)
        with client.responses.stream(input=said, tool_choice=choice, **asked) as stream:
            final = stream.get_final_response()
        (streamed,) = final.output
        assert streamed.type == "function_call"
        assert (streamed.call_id, streamed.arguments) == (call.call_id, call.arguments)
        said += [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}]
        assert client.responses.create(input=said, max_output_tokens=5, **asked).usage
    chat = calling.chat(
        "Will it rain?",
        tools=CHAT_TOOLS,
        seed=3,
        temperature=0.5,
        tool_choice={"type": "function", "function": {"name": "weather"}},
    )
    (same,) = chat.choice["message"]["tool_calls"]
    assert (same["id"], same["function"]["arguments"]) == (call.call_id, call.arguments)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_oai_9_calls_are_items_of_their_own(calling: HttpServed, seed: int) -> None:
    asked: dict[str, Any] = {"input": "Rain?", "tools": TOOLS, "tool_choice": "required", "seed": seed}
    found = respond(calling, max_output_tokens=200, temperature=1.5, max_chunk_tokens=1, **asked)
    assert {item["type"] for item in found["output"]} == {"function_call"}
    assert len({item["call_id"] for item in found["output"]}) == len(found["output"])
    assert found["tools"] == TOOLS and found["tool_choice"] == "required"
    cut = respond(calling, max_output_tokens=12, temperature=1.5, **asked)
    assert cut["output"][-1]["status"] == cut["status"] == "incomplete"
    one = respond(calling, max_output_tokens=270, temperature=1.5, parallel_tool_calls=False, **asked)
    assert len(one["output"]) == 1 and one["parallel_tool_calls"] is False


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_oai_9_only_allowed_tools_are_shown_and_called(calling: HttpServed, mode: str) -> None:
    choice = {**ALLOWED, "mode": mode}
    chosen = {name: each for name, each in choice.items() if name != "type"}
    chosen = {**chosen, "tools": [{"type": "function", "function": {"name": "stop"}}]}
    asked: dict[str, Any] = {"seed": 3, "temperature": 1.5}
    found = respond(calling, input="Rain?", tools=TOOLS, tool_choice=choice, max_output_tokens=120, **asked)
    alone = respond(calling, input="Rain?", tools=TOOLS[1:], tool_choice=mode, max_output_tokens=120, **asked)
    assert comparable({**found, "tools": [], "tool_choice": ""}) == comparable(
        {**alone, "tools": [], "tool_choice": ""}
    )
    assert (found["tools"], found["tool_choice"]) == (TOOLS, choice)
    chat = calling.chat(
        "Rain?",
        tools=CHAT_TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": chosen},
        max_tokens=120,
        **asked,
    ).choice["message"]
    calls = [item["arguments"] for item in found["output"] if item["type"] == "function_call"]
    assert [call["function"]["arguments"] for call in chat.get("tool_calls", [])] == calls
    assert bool(calls) or mode == "auto"


STOP_CALL = '<tool_call>\\n{\\"name\\": \\"stop\\", \\"arguments\\": {}}\\n</tool_call>'
SPOKEN = f'root ::= "<think>\\nHm.\\n</think>\\n\\nYes: {STOP_CALL}"'


@pytest.mark.long
def test_oai_9_reasoning_text_and_a_call_are_one_item_each(calling: HttpServed) -> None:
    # A call alone would be allowed too.
    tokens = map(calling.served.state.model.tokenizer.token_bytes, range(2047))
    begins_call = {str(i): -100 for i, token in enumerate(tokens) if token.startswith((b"<to", b"to", b"o"))}
    asked: dict[str, Any] = {"input": "Rain?", "tools": TOOLS, "grammar": SPOKEN, "seed": 1, "temperature": 0}
    found = respond(calling, include=["message.output_text.logprobs"], logit_bias=begins_call, **asked)
    assert [item["type"] for item in found["output"]] == ["reasoning", "message", "function_call"]
    thought, message, call = found["output"]
    assert (thought["content"], thought["summary"]) == ([{"type": "reasoning_text", "text": "Hm."}], [])
    assert message["content"][0]["text"].strip() == "Yes:" and (call["name"], call["arguments"]) == ("stop", "{}")
    assert {item["status"] for item in found["output"]} == {"completed"}
    # The text has log probabilities, including the marker before it. The reasoning has none.
    scored = b"".join(bytes(entry["bytes"]) for entry in message["content"][0]["logprobs"])
    assert b"Yes:" in scored and b"Hm" not in scored
    assert {len(entry["top_logprobs"]) for entry in message["content"][0]["logprobs"]} == {0}


def test_oai_9_text_after_a_call_may_come_with_the_end_of_the_call() -> None:
    """A reply merges several tokens: the rest of the arguments, and the text that follows them."""
    served = ServedModel(read_settings(None, []).settings, 2048, 2048, 512, ("imp-demo",))
    body = {"input": "Rain?", "tools": TOOLS}
    parsed = read_response(Reading(body, RESPONSES, ignores_unknown=False), served, Caller())
    table = TokenTable(token_bytes=[b"x"], special=frozenset(), bos=None, adds_space_prefix=False)
    response = Response(Head("resp_1", 1, "imp-demo", None), parsed, TokenTexts(table, shows_special=False))
    begun, rest = ToolCallDelta(0, "call_1", "stop", "{"), ToolCallDelta(0, arguments="}")
    again = ToolCallDelta(1, "call_2", "stop", "{}")
    response.take(Chunk(0, 0, [0], "", [], [], tool_calls=[begun]))
    response.take(Chunk(0, 1, [0], "Done", [], [], reasoning="Hm", tool_calls=[rest, again]))
    response.take(Finished(0, "stop", None, "", Usage(1, 0, 2)))
    items = response.fields()["output"]
    assert [item["type"] for item in items] == ["function_call", "reasoning", "message", "function_call"]
    assert [item["arguments"] for item in items if item["type"] == "function_call"] == ["{}", "{}"]
    assert {item["status"] for item in items} == {"completed"}


def test_oai_9_an_answer_without_a_token_is_an_empty_message(http: HttpServed) -> None:
    found = respond(http, input="Hello", logit_bias={"2047": 100}, temperature=0)
    assert (found["status"], text_of(found), len(found["output"])) == ("completed", "", 1)


def test_oai_9_a_failure_after_the_stream_began_is_its_last_event() -> None:
    with serve_http(model=scripted(script={"nan_token": 705})) as http:
        body = {"input": "x", "max_output_tokens": 20, "logit_bias": {"705": 100}, "temperature": 0}
        events = http.client.stream(PATH, body)
        assert events.objects[-1]["type"] == "error" and events.objects[-1]["code"] == "non_finite"
        with client_of(http) as client:
            stream = client.responses.create(
                model=DEMO_MODEL, input="x", stream=True, temperature=0, extra_body={"logit_bias": {"705": 100}}
            )
            last = list(stream)[-1]
            assert last.type == "error" and last.message
        http.wait_for_rest()


def test_oai_9_leaving_a_stream_frees_its_sequence() -> None:
    with serve_http(model=scripted(max_context=100_000, n_blocks=7000)) as http, client_of(http) as client:
        with client.responses.create(model=DEMO_MODEL, input="x", stream=True) as stream:
            assert [next(stream).type for _ in range(5)]
        http.wait_for_rest()


def test_oai_9_log_probabilities_that_a_reply_cannot_hold_are_refused() -> None:
    with serve_http("limits.max_message_bytes=65536") as small:
        for stream in (False, True):
            reply = small.client.post(PATH, {"input": "x", "top_logprobs": 20, "stream": stream})
            assert reply.refusal == (400, "field_invalid", "top_logprobs")


USER = {"role": "user", "content": "x"}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "integer"}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": 7}, "input"),
    ({"input": {}}, "input"),
    ({"input": []}, "input"),
    ({"input": [7]}, "input[0]"),
    ({"input": [USER, {}]}, "input[1].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
    ({"input": [USER, {"type": "item_reference", "id": "x"}]}, "input[1].type"),
    ({"input": [{**USER, "type": ["message"]}]}, "input[0].type"),
    ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "a", "output": 7}]}, "input[0].output"),
    ({"input": [{"type": "function_call_output", "call_id": "a" * 1000, "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "reasoning", "content": "x"}]}, "input[0].content"),
    ({"input": [{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
    ({"input": [USER] * 4097}, "input"),
    ({"instructions": 7}, "instructions"),
    ({"max_output_tokens": -2}, "max_output_tokens"),
    ({"max_output_tokens": 2**32}, "max_output_tokens"),
    ({"temperature": 101}, "temperature"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"include": "x"}, "include"),
    ({"include": ["message.output_text.logprobs", "file_search_call.results"]}, "include[1]"),
    ({"include": ["file_search_call.results"]}, "include[0]"),
    ({"text": "x"}, "text"),
    ({"text": {"nosuch": 1}}, "text.nosuch"),
    ({"text": {"verbosity": "none"}}, "text.verbosity"),
    ({"text": {"format": {"type": "sound"}}}, "text.format.type"),
    ({"text": {"format": {**FORMAT, "name": None}}}, "text.format.name"),
    ({"text": {"format": {**FORMAT, "schema": None}}}, "text.format.schema"),
    ({"text": {"format": {**FORMAT, "schema": 7}}}, "text.format.schema"),
    ({"text": {"format": {**FORMAT, "schema": {"$ref": "https://example.com/x"}}}}, "text.format.schema"),
    ({"text": {"format": {**FORMAT, "strict": "x"}}}, "text.format.strict"),
    ({"text": {"format": {"type": "json_schema", "json_schema": {}}}}, "text.format.name"),
    ({"text": {"format": FORMAT}, "grammar": 'root ::= "a"'}, "grammar"),
    ({"tools": [TOOLS[0], {"name": "f"}]}, "tools[1].type"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": "function", "parameters": {}}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "f", "parameters": 7}]}, "tools[0].parameters"),
    ({"tools": CHAT_TOOLS}, "tools[0].function"),
    (
        {"tools": [{**TOOLS[0], "strict": True, "parameters": {"not": {}}}], "tool_choice": "required"},
        "tools[0].parameters",
    ),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "sing"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.name"),
    ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
    ({"reasoning": {"nosuch": 1}}, "reasoning.nosuch"),
    ({"metadata": {"a": 7}}, "metadata"),
    ({"metadata": {"a": "x" * 513}}, "metadata"),
    ({"metadata": {"a" * 65: "x"}}, "metadata"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"),
    ({"store": "yes"}, "store"),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": [{"name": "f"}]}}, "tool_choice.mode"),
    ({"tools": TOOLS, "tool_choice": {**ALLOWED, "tools": []}}, "tool_choice.tools"),
    ({"tools": TOOLS, "tool_choice": {**ALLOWED, "tools": [{"type": "mcp"}]}}, "tool_choice.tools[0].type"),
    ({"tools": TOOLS, "tool_choice": {**ALLOWED, "tools": [{"type": "function"}]}}, "tool_choice.tools[0].name"),
    (
        {"tools": TOOLS, "tool_choice": {**ALLOWED, "tools": [{"type": "function", "name": "sing"}]}},
        "tool_choice",
    ),
    (
        {"tools": [TOOLS[0], {**TOOLS[1], "strict": True, "parameters": {"not": {}}}], "tool_choice": ALLOWED},
        "tools[1].parameters",
    ),
    ({"background": True}, "background"),
    ({"truncation": "none"}, "truncation"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "x"}}, "prompt"),
    ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
    ({"messages": [USER]}, "messages"),
]


@pytest.mark.few(5)
@pytest.mark.parametrize(("fields", "param"), BAD, ids=lambda value: json.dumps(value)[:60])
def test_oai_9_a_bad_request_names_the_callers_field(calling: HttpServed, fields: dict[str, Any], param: str) -> None:
    before = calling.served.stats().n_steps
    reply = calling.client.post(PATH, {"input": "x", **fields})
    assert reply.refusal == (400, "field_invalid", param), reply.content
    assert calling.served.stats().n_steps == before


@pytest.mark.long
def test_oai_9_errors_have_their_class(http: HttpServed) -> None:
    with client_of(http) as client:
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="nosuch", input="x")
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model=DEMO_MODEL, input="a " * 2000)
        assert raised.value.code == "context_length_exceeded"
    assert http.client.post(PATH, {"input": "x", "imput": 1}).refusal == (400, "unknown_parameter", "imput")
