"""Tools and reasoning over HTTP: imp's channels in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.text.tool_templates import HERMES

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
STRICT = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"not": {}}}}]
SCHEMA_NOT = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": {"not": {}}}}


def allowed(name: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}


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


@pytest.mark.few(2)
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


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tol_4_a_required_call_is_held_to_its_own_schema(client: OpenAI, choice: Any) -> None:
    asked: dict[str, Any] = {
        "model": DEMO_MODEL,
        "messages": ASKED,
        "tools": TOOLS[:1],
        "seed": 3,
        "tool_choice": choice,
    }
    for kept in ({"type": "json_object"}, SCHEMA_NOT):
        reply = client.chat.completions.create(response_format=kept, parallel_tool_calls=False, **asked)
        (call,) = reply.choices[0].message.tool_calls or ()
        jsonschema.validate(json.loads(call.function.arguments), SCHEMA)  # type: ignore[union-attr]


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_tol_4_tol_5_the_model_calls_once_or_answers_in_the_schema(http: HttpServed, seed: int) -> None:
    answer = {"type": "object", "properties": {"sky": {"enum": ["red", "blue"]}}, "required": ["sky"]}
    schema = {**answer, "additionalProperties": False}
    asked = {
        "tools": TOOLS[1:],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        "seed": seed,
        "temperature": 1.5,
        "max_tokens": 250,
    }
    # Half of the requests are biased towards the first letter of a call.
    [begin] = http.client.post("/tokenize", {"prompt": "<", "add_special_tokens": False}).json["tokens"][-1:]
    bias = {str(begin): 100} if seed % 2 else {}
    one = http.chat(ASKED, **asked, logit_bias=bias, parallel_tool_calls=False).choice
    several = http.chat(ASKED, **asked, logit_bias=bias).choice
    if seed % 2:
        (call,) = one["message"]["tool_calls"]
        assert (call["function"]["name"], one["finish_reason"]) == ("stop", "tool_calls")
        assert json.loads(call["function"]["arguments"]) == {}
        assert several["message"]["tool_calls"][0]["function"] == call["function"]
    else:
        jsonschema.validate(json.loads(one["message"]["content"]), schema)
        assert one["message"] == several["message"] and one["finish_reason"] == "stop"


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


def test_chn_11_reasoning_tokens_are_counted_in_chats_and_responses(http: HttpServed) -> None:
    """The grammar fixes the text; how the model divides it into tokens is its own."""
    grammar = 'root ::= "<think>\\nWhy not\\n</think>\\n\\nSo"'
    asked: dict[str, Any] = {"grammar": grammar, "seed": 4}
    chat = http.chat("Hello", **asked, return_token_ids=True)
    tokenizer = http.served.state.model.tokenizer
    texts = [tokenizer.token_bytes(token) for token in chat.choice["token_ids"]]
    starts = [len(b"".join(texts[:i])) for i in range(len(texts))]
    begin, end = len("<think>\n"), len("<think>\nWhy not")
    n_tokens = sum(begin <= start < end for start in starts)
    assert chat.choice["message"]["reasoning_content"] == "Why not" and n_tokens > 0
    assert chat.json["usage"]["completion_tokens_details"] == {"reasoning_tokens": n_tokens}
    body = {"messages": [{"role": "user", "content": "Hello"}], **asked, "stream_options": {"include_usage": True}}
    usage = http.client.stream("/v1/chat/completions", body).objects[-1]["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": n_tokens}
    response = http.client.post("/v1/responses", {"input": "Hello", **asked}).json
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": n_tokens}
    assert http.chat("Hello", max_tokens=2).json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


SHOWING = """{% if tools %}{{ tools | tojson }}{% endif %}
{%- for d in documents or [] %}{{ d.title }} {% endfor %}{% for m in messages %}
{{- '(' + m.content + ')' if m.content is defined else 'null' }}{{ m.thinking or '' }}{% for c in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}
{{- '}\n</tool_call>' }}{% endfor %}{% endfor %}"""


def test_chn_10_null_content_reasoning_and_documents_reach_the_template(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(SHOWING)
    calls = [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    written = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    said: list[tuple[dict[str, Any], str]] = [
        ({"content": None, "tool_calls": calls}, f"null{written}"),
        ({"tool_calls": calls}, f"null{written}"),
        ({"content": "", "tool_calls": calls}, f"(){written}"),
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


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any", "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "sing"}}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": TOOLS}, "tool_choice.allowed_tools"),
        ({"tool_choice": allowed("sing"), "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": allowed("stop")}, "tool_choice"),
        ({"tool_choice": allowed("f"), "tools": [*TOOLS, *STRICT]}, "tools[2].function.parameters"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": STRICT, "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"tools": STRICT, "response_format": {"type": "json_object"}}, "tools[0].function.parameters"),
        ({"tools": TOOLS, "response_format": SCHEMA_NOT}, "response_format.json_schema.schema"),
    ],
)
def test_oai_1_a_choice_that_cannot_be_is_refused(http: HttpServed, fields: dict[str, Any], param: str) -> None:
    reply = http.chat(ASKED, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)
