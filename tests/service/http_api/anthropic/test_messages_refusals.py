"""What a request gets wrong is said in Anthropic's form, and nothing is evaluated."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_tokens_params
from anthropic.types.beta import message_create_params as beta_create_params
from anthropic.types.shared import ErrorType

from imp_service.generation import ModelRuntime
from imp_service.http_api.anthropic.fields import COUNT_TOKENS, MESSAGES, WITHOUT_EFFECT
from imp_service.http_api.requests.rows import Accepted, Refused, Sets
from imp_service.serving.errors.error_table import ERRORS, Detail
from imp_service.serving.refusal import Refusal
from support.calls.anthropic_types import check_error
from support.calls.raw_http import exchange, head
from support.servers.http_served import HttpServed, serve_http
from support.servers.messages_served import COUNT, PATH, TOOLS, refusal, said

WORD = base64.b64encode(b"no image").decode()
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http() as it:
        it.served.is_checked = False  # a test causes faults in its log
        yield it


def of_sdk(*params: Any) -> set[str]:
    """Returns the names of all parameters of the SDK's methods."""
    return {name for each in params for name in get_type_hints(each)}


def test_msg_6_every_parameter_of_the_sdk_has_a_row() -> None:
    create = of_sdk(message_create_params.MessageCreateParamsBase, beta_create_params.MessageCreateParamsBase)
    assert create - MESSAGES.keys() == set() and {"messages", "max_tokens", "mcp_servers"} <= create
    count = of_sdk(
        message_count_tokens_params.MessageCountTokensParams, beta_count_tokens_params.MessageCountTokensParams
    )
    assert count - COUNT_TOKENS.keys() == set() and {"messages", "tools"} <= count
    # Older releases of the SDK have these too.
    assert all(isinstance(MESSAGES[name], Sets) for name in ("temperature", "top_p", "top_k", "stop_sequences"))


@pytest.mark.parametrize("name", [name for name, row in MESSAGES.items() if isinstance(row, Refused)])
def test_msg_6_what_would_change_the_answer_is_refused_by_name(http: HttpServed, name: str) -> None:
    status, message = refusal(http, **{name: [1]})
    row = MESSAGES[name]
    assert status == 400 and isinstance(row, Refused) and message == f"{name}: not supported: {row.instead}"
    assert http.client.post(PATH, {"messages": said("Hi"), "max_tokens": 1, name: None}).status == 200


HARMLESS: dict[str, list[Any]] = {
    "metadata": [{"user_id": "someone"}],
    "cache_control": [{"type": "ephemeral", "ttl": "1h"}],
    "service_tier": ["auto", "standard_only"],
    "speed": ["standard", "fast"],
    "context_management": [{"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}],
    "inference_geo": ["eu"],
    "diagnostics": [{"previous_message_id": "msg_1"}],
    "betas": [["a"]],
    "billing_policy": ["x"],
    "user_profile_id": ["x"],
    "workspace_id": ["x"],
    "fallback_credit_token": ["x"],
}


def test_msg_6_what_changes_nothing_is_accepted(http: HttpServed) -> None:
    assert HARMLESS.keys() == WITHOUT_EFFECT.keys()
    asked = {"messages": said("Hello"), "max_tokens": 4, "temperature": 0}
    plain = http.client.post(PATH, asked).json["content"]
    for name, values in HARMLESS.items():
        for value in values:
            reply = http.client.post(PATH, {**asked, name: value})
            assert reply.json["content"] == plain, name
            is_named = not isinstance(WITHOUT_EFFECT[name], Accepted) or value == "fast"
            assert reply.headers.get("imp-ignored") == (f'"{name}"' if is_named else None)
    headers = {"anthropic_version": "2023-06-01", "anthropic_beta": "a,b"}
    assert http.client.post(PATH, asked, **headers).json["content"] == plain


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": said(list(blocks))}


def image(source: Any) -> dict[str, Any]:
    return user({"type": "image", "source": source})


def tool(**changes: Any) -> dict[str, Any]:
    return {"tools": [{**TOOLS[0], **changes}]}


RESULT = {"type": "tool_result", "tool_use_id": "a"}
CALL = {"type": "tool_use", "id": "a", "name": "stop", "input": {}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages: not set"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": ["Hello"]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role: not set"),
    ({"messages": [{"role": "user"}]}, "messages[0].content: not set"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": said(7)}, "messages[0].content"),
    (user("Hello"), "messages[0].content[0]"),
    (user({"text": "x"}), "messages[0].content[0].type"),
    (user({"type": ["text"]}), "messages[0].content[0].type"),
    (user({"type": "text"}), "messages[0].content[0].text: not set"),
    (user({"type": "text", "text": 7}), "messages[0].content[0].text"),
    (user({"type": "document", "source": {}}), 'messages[0].content[0].type: "document" is not supported'),
    (user({"type": "search_result"}), 'messages[0].content[0].type: "search_result" is not supported'),
    (user({"type": "server_tool_use"}), 'messages[0].content[0].type: "server_tool_use" is not supported'),
    (user(CALL), 'messages[0].content[0].type: "tool_use" is not supported'),
    (user({"type": "thinking", "thinking": "x"}), "messages[0].content[0].type"),
    ({"messages": [{"role": "assistant", "content": [RESULT]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "assistant", "content": [{**CALL, "input": "x"}]}]}, "messages[0].content[0].input"),
    ({"messages": [{"role": "assistant", "content": [{**CALL, "id": None}]}]}, "messages[0].content[0].id: not set"),
    ({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]}, "messages[0].content[0].thinking"),
    (user({"type": "tool_result"}), "messages[0].content[0].tool_use_id: not set"),
    (user({**RESULT, "is_error": "x"}), "messages[0].content[0].is_error"),
    (user({**RESULT, "content": [{"type": "document"}]}), "messages[0].content[0].content[0].type"),
    (image(None), "messages[0].content[0].source: not set"),
    (image({"type": "base64"}), "messages[0].content[0].source.data: not set"),
    (image({"type": "base64", "data": "%"}), "messages[0].content[0].source.data: has bytes that are not base64"),
    (image({"type": "file", "file_id": "f"}), "messages[0].content[0].source.type: not supported"),
    (image({"type": "ftp"}), "messages[0].content[0].source.type"),
    (image({"type": "url", "url": "http://localhost/x.png"}), "messages[0].content[0].source.url: is no data: URL"),
    (image({"type": "base64", "media_type": "image/png", "data": WORD}), "messages[0].content[0].source: "),
    ({"system": 7}, "system"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"max_tokens": "x"}, "max_tokens"),
    ({"max_tokens": -7}, "max_tokens"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": "x"}, "top_k"),
    ({"stream": "x"}, "stream"),
    ({"model": 7}, "model"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 'tools[0].type: "web_search_20250305" is not'),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, 'tools[0].type: "bash_20250124" is not'),
    (tool(name=None), "tools[0].name: not set"),
    (tool(input_schema=None), "tools[0].input_schema: not set"),
    (tool(input_schema="x"), "tools[0].input_schema"),
    (tool(defer_loading=True), "tools[0].defer_loading"),
    ({**tool(strict=True, input_schema={"not": {}}), "tool_choice": {"type": "any"}}, "tools[0].input_schema"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice.type: not set"),
    ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice.name: not set"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "nosuch"}}, "tool_choice"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"thinking": {}}, "thinking.type: not set"),
    ({"thinking": True}, "thinking"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema: not set"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "output_config.format.schema"),
    ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
    ({"output_config": {"size": 1}}, "output_config.size: unknown field"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"metadata": "x"}, "metadata"),
    ({"nosuch": 1}, "nosuch: unknown field"),
    ({"max_token": 1}, "max_token: unknown field, did you mean max_tokens?"),
]


@pytest.mark.parametrize(("fields", "begin"), BAD, ids=[begin for _, begin in BAD])
def test_msg_6_a_bad_request_is_told_what_is_wrong_with_it(
    http: HttpServed, fields: dict[str, Any], begin: str
) -> None:
    before = http.served.stats().n_steps
    status, message = refusal(http, **fields)
    assert (status, message[: len(begin)]) == (400, begin), message
    assert http.served.stats().n_steps == before


def test_msg_6_one_error_names_everything(http: HttpServed) -> None:
    status, message = refusal(http, temperature=-1, mcp_servers=[1], nosuch=1)
    assert status == 400 and all(name in message for name in ("temperature", "mcp_servers", "nosuch"))
    assert refusal(http, COUNT, messages=None, max_tokens=1, thinking=7)[0] == 400


def test_msg_6_unknown_members_of_messages_and_tools_are_named(http: HttpServed) -> None:
    asked = {"messages": [{**said("Hi")[0], "x": 1}], "tools": [{**TOOLS[0], "y": 1}], "max_tokens": 1}
    reply = http.client.post(PATH, asked)
    assert reply.status == 200 and {'"messages[0].x"', '"tools[0].y"'} <= set(reply.headers["imp-ignored"].split(", "))


@pytest.mark.few(12)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("reason", [reason for reason in ERRORS if reason != "BUG"])
def test_msg_7_every_reason_has_its_type(
    http: HttpServed, reason: str, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ERRORS[reason]

    def fail(model: ModelRuntime, request: object, **how: object) -> None:
        raise Refusal(
            reason, "injected", dict.fromkeys(row.metadata, "1"), 2.5 if Detail.RETRY_INFO in row.details else None
        )

    monkeypatch.setattr(ModelRuntime, "plan", fail)
    body = {"messages": said("x"), "max_tokens": 1, "stream": is_streamed}
    reply, known = http.client.post(PATH, body), http.complete("x")
    assert reply.error["type"] == TYPES[reply.status] and reply.error["message"].partition("; ")[0].endswith("injected")
    assert reply.status == known.status
    for name in ("retry-after", "retry-after-ms", "x-should-retry"):
        assert reply.headers.get(name) == known.headers.get(name)


def test_msg_7_the_types_are_those_of_the_sdk() -> None:
    assert set(TYPES.values()) - {"request_too_large"} <= set(get_args(ErrorType))


def test_msg_7_refusals_of_a_head_have_the_form_of_the_path(http: HttpServed) -> None:
    for path, body in ((PATH, "type"), ("/messages", "type"), ("/v1/chat/completions", "code")):
        replies = [
            exchange(http, head(f"GET {path} HTTP/1.1"), 1),
            exchange(http, head(f"POST {path} HTTP/1.1", "Content-Length: 2"), 1),
            exchange(http, head(f"POST {path} HTTP/1.1", host="example.com"), 1),
        ]
        expected = [HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.MISDIRECTED_REQUEST]
        assert [each.status for each in replies] == expected
        for reply in replies:
            assert body in reply.error
    check_error(http.client.get("/v1/messages/batches").json)


def test_msg_7_an_id_of_the_client_is_in_the_error(http: HttpServed) -> None:
    reply = http.client.post(PATH, {"messages": []}, x_request_id="mine")
    assert reply.json["request_id"] == reply.headers["request-id"] == "mine"
