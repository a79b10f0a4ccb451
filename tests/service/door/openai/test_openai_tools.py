"""Tools and reasoning over HTTP: imp's channels in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from support.http_served import DEMO_MODEL, HttpServed, serve_http
from support.tool_templates import HERMES

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "additionalProperties": False}}},
]
ASKED: list[Any] = [{"role": "user", "content": "Will it rain?"}]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    path = tmp_path_factory.mktemp("templates") / "chat.jinja"
    path.write_text(HERMES)
    with serve_http(f"model.overrides.chat_template={path}", "limits.max_context=512") as served:
        yield served


@pytest.fixture(scope="module")
def client(http: HttpServed) -> Iterator[OpenAI]:
    with OpenAI(base_url=http.url, api_key="any", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("seed", range(5))
def test_tol_1_a_named_call_has_arguments_that_fit(client: OpenAI, seed: int) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    reply = client.chat.completions.create(
        model=DEMO_MODEL, messages=ASKED, tools=TOOLS, tool_choice=choice, seed=seed, temperature=1.5
    )
    (call,) = reply.choices[0].message.tool_calls or ()
    assert call.type == "function" and call.function.name == "weather" and call.id
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.content is None


def test_tol_2_a_streamed_call_is_the_whole_one(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": DEMO_MODEL, "messages": ASKED, "tools": TOOLS, "seed": 3, "max_tokens": 120}
    whole = client.chat.completions.create(tool_choice="required", parallel_tool_calls=False, **asked)
    with client.chat.completions.stream(tool_choice="required", parallel_tool_calls=False, **asked) as stream:
        streamed = stream.get_final_completion()
    calls = [
        [(call.id, call.function.name, call.function.arguments) for call in each.choices[0].message.tool_calls or ()]
        for each in (whole, streamed)
    ]
    assert calls[0] == calls[1] and len(calls[0]) == 1
    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"


def test_tol_1_tool_choice_none_hides_the_tools(http: HttpServed) -> None:
    plain = http.chat(ASKED, max_tokens=12, seed=1, temperature=1)
    hidden = http.chat(ASKED, max_tokens=12, seed=1, temperature=1, tools=TOOLS, tool_choice="none")
    assert hidden.choice["message"] == plain.choice["message"]
    assert hidden.json["usage"] | {"prompt_tokens_details": {}} == plain.json["usage"] | {"prompt_tokens_details": {}}


def test_tol_1_a_result_goes_back_to_the_model(http: HttpServed) -> None:
    call = {"id": "abc", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    said = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]
    answered = [*said, {"role": "tool", "tool_call_id": "abc", "content": "It rains."}]
    tokens = [
        http.client.post("/tokenize", {"messages": each, "tools": TOOLS}).json["count"] for each in (said, answered)
    ]
    assert tokens[0] < tokens[1]
    assert http.chat(answered, tools=TOOLS, max_tokens=5).status == 200


SHOWING = """{% for d in documents or [] %}{{ d.title }} {% endfor %}{% for m in messages %}
{{- 'null' if m.content is none else '(' + m.content + ')' }}{{ m.thinking or '' }}{% endfor %}"""


def test_chn_10_null_content_reasoning_and_documents_reach_the_template(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(SHOWING)
    calls = [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    said: list[tuple[dict[str, Any], str]] = [
        ({"content": None, "tool_calls": calls}, "null"),
        ({"tool_calls": calls}, "null"),
        ({"content": "", "tool_calls": calls}, "()"),
        ({"content": "a", "reasoning_content": "why"}, "(a)why"),
        ({"content": "a", "reasoning": "why"}, "(a)why"),
    ]
    with serve_http(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}", "limits.max_context=512") as http:
        for message, shown in said:
            body = {"messages": [*ASKED, {"role": "assistant", **message}], "documents": [{"title": "News"}]}
            tokens = http.client.post("/tokenize", body).json["tokens"]
            whole = http.client.post("/detokenize", {"tokens": tokens}).json["prompt"]
            assert whole == f"News (Will it rain?){shown}"
            usage = http.chat(body["messages"], documents=body["documents"], max_tokens=1).json["usage"]
            assert usage["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any", "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "sing"}}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": TOOLS}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": TOOLS, "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice"),
    ],
)
def test_oai_1_a_choice_that_cannot_be_is_refused(http: HttpServed, fields: dict[str, Any], param: str) -> None:
    reply = http.chat(ASKED, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)
