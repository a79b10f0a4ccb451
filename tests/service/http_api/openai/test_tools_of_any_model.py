"""Tools over HTTP with models whose chat template does not take them: the built-in model as it is (TOL-6, TOL-7)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from support.servers.http_served import HttpServed, serve_http

CHATS, RESPONSES = "/v1/chat/completions", "/v1/responses"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "Tells the weather.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
NAMED = {"type": "function", "function": {"name": "weather"}}
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Will it rain?"}]
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome", "days": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "It rains."}


def prompt_of(http: HttpServed, **body: Any) -> str:
    """Returns the prompt of a conversation as text."""
    tokens = http.client.post("/tokenize", body).json["tokens"]
    return str(http.client.post("/detokenize", {"tokens": tokens}).json["prompt"])


def test_tol_6_the_prompt_has_the_tools_and_their_results(http: HttpServed) -> None:
    text = prompt_of(http, messages=[*ASKED, {"role": "assistant", "tool_calls": [CALL]}, RESULT], tools=TOOLS)
    assert text.count(json.dumps(FUNCTION)) == 1
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 1}}\n</tool_call>' in text
    assert "<tool_response>\nIt rains.\n</tool_response>" in text
    hidden = http.chat(ASKED, tools=TOOLS, tool_choice="none", max_tokens=1)
    shown = http.chat(ASKED, tools=TOOLS, max_tokens=1)
    plain = http.chat(ASKED, max_tokens=1).json["usage"]["prompt_tokens"]
    assert (hidden.json["usage"]["prompt_tokens"], hidden.status, shown.status) == (plain, 200, 200)
    assert shown.json["usage"]["prompt_tokens"] > plain + 50 and "imp-ignored" not in shown.headers


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_tol_6_a_required_call_works_on_every_model(http: HttpServed, choice: Any) -> None:
    body = {"messages": ASKED, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "seed": 2}
    whole = http.client.post(CHATS, body)
    (call,) = whole.choice["message"]["tool_calls"]
    assert (whole.choice["finish_reason"], whole.choice["message"]["content"]) == ("tool_calls", None)
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
    events = http.client.stream(CHATS, body)
    deltas = [each for event in events.objects for each in event["choices"][0]["delta"].get("tool_calls") or []]
    assert "".join(each["function"]["arguments"] for each in deltas) == call["function"]["arguments"]
    flat = {"type": "function", **FUNCTION}
    picked = choice if isinstance(choice, str) else {"type": "function", "name": "weather"}
    asked = {"input": ASKED, "tools": [flat], "tool_choice": picked, "parallel_tool_calls": False, "seed": 2}
    (item,) = http.client.post(RESPONSES, asked).json["output"]
    assert (item["type"], item["arguments"]) == ("function_call", call["function"]["arguments"])


@pytest.mark.long
def test_chn_12_a_call_that_max_tokens_cuts_is_no_content(http: HttpServed) -> None:
    body = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "seed": 2}
    n_tokens = http.client.post(CHATS, body).json["usage"]["completion_tokens"]
    for n in range(1, n_tokens):
        reply = http.client.post(CHATS, {**body, "max_tokens": n})
        assert not reply.choice["message"]["content"], n
        assert reply.choice["finish_reason"] == "length"
        events = http.client.stream(CHATS, {**body, "max_tokens": n})
        assert not "".join(each["choices"][0]["delta"].get("content") or "" for each in events.objects)


def test_tol_3_what_cannot_be_done_with_tools_is_an_error_of_the_request() -> None:
    with serve_http("model.overrides.dialect=plain") as http:
        reply = http.chat(ASKED, tools=TOOLS)
        assert reply.refusal == (400, "field_invalid", "tools")
        assert reply.error["type"] == "invalid_request_error" and "model.overrides.dialect" in reply.error["message"]
        flat = http.client.post(RESPONSES, {"input": "x", "tools": [{"type": "function", **FUNCTION}]})
        assert flat.refusal == (400, "field_invalid", "tools")


def test_tol_7_the_head_names_tools_that_the_prompt_lacks(tmp_path: Any) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(SOMETIMES)
    with serve_http(f"model.overrides.chat_template={template}") as http:
        said = [*ASKED, {"role": "assistant", "content": "Hm"}]
        assert "imp-ignored" not in http.chat(ASKED, tools=TOOLS, max_tokens=1).headers
        reply = http.chat(said, tools=TOOLS, max_tokens=1, keep_alive="5m")
        assert reply.headers["imp-ignored"] == '"keep_alive", "tools"'
        body = {"messages": said, "tools": TOOLS, "max_tokens": 1}
        assert http.client.stream(CHATS, body).headers["imp-ignored"] == '"tools"'


# Shows its tools only beside a last message of the user, as older templates of Mistral do.
SOMETIMES = """{% for m in messages %}{% if tools and loop.last and m.role == 'user' %}{{ tools | tojson }}{% endif %}
{{- m.content or '' }}{% for c in m.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}{% endfor %}{% endfor %}"""
