"""Names that clients of other servers send: each does what it means there, is ignored by name, or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from imp_service.http_api.openai.fields import CHAT, COMPLETIONS, INFILL, RESPONSES
from imp_service.http_api.requests.rows import Ignored, Means, Table
from support.servers.http_served import HttpServed, serve_http

CHATS, TEXTS, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
TABLES: Mapping[str, Table] = {CHATS: CHAT, TEXTS: COMPLETIONS, RESPONSE: RESPONSES}
SAID = [{"role": "user", "content": "the cat sat. the cat sat. the cat sat. the cat"}]
# Shows the variables by which templates know whether and how much to reason.
SHOWING = """{% for m in messages %}{{ m.content }}{% endfor %}
{{- ' on' if enable_thinking is true }}{{ ' off' if enable_thinking is false }}
{{- ' think' if thinking }}{{ ' ' + reasoning_effort if reasoning_effort }}"""


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    # At temperature 1 each penalty shows.
    with serve_http("model.overrides.default_sampling.temperature=1", "model.overrides.default_sampling.min_p=0") as it:
        yield it


def base_of(path: str) -> dict[str, Any]:
    asked = {CHATS: {"messages": SAID}, TEXTS: {"prompt": SAID[0]["content"]}, RESPONSE: {"input": SAID}}[path]
    few = {"logit_bias": dict.fromkeys(map(str, range(300, 306)), 100)}
    return {**asked, **few, "seed": 7, "max_output_tokens" if path == RESPONSE else "max_tokens": 24}


def words(http: HttpServed, path: str, fields: Mapping[str, Any]) -> Any:
    """Returns what the model wrote."""
    reply = http.client.post(path, {**base_of(path), **fields})
    assert reply.status == 200, reply.content
    return reply.json["output"][0]["content"] if path == RESPONSE else reply.json["choices"]


# Fields of another server, and imp's fields that mean the same.
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"repeat_penalty": 3}, {"repetition_penalty": 3}),
    ({"repeat_penalty": 3, "repeat_last_n": -1}, {"repetition_penalty": 3}),
    ({"typ_p": 0.01}, {"typical_p": 0.01}),
    ({"do_sample": False}, {"temperature": 0}),
    ({"do_sample": True}, {}),
    ({"format": "json"}, {"structured_outputs": {"json_object": True}}),
    ({"format": {"const": 12}}, {"structured_outputs": {"json": {"const": 12}}}),
    ({"format": ""}, {}),
    ({"t_max_predict_ms": 0}, {}),
    ({"mirostat": 0, "tfs_z": 1.0, "top_a": 0, "xtc_probability": 0.0, "dynatemp_range": 0}, {}),
]


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_a_name_of_another_server_does_what_it_means_there(http: HttpServed, path: str) -> None:
    for theirs, ours in SAME:
        assert words(http, path, theirs) == words(http, path, ours), theirs
    limit = "max_output_tokens" if path == RESPONSE else "max_tokens"
    for name in ("n_predict", "num_predict", "max_new_tokens"):
        assert words(http, path, {limit: None, name: 3}) == words(http, path, {limit: 3}), name
        asked = {**base_of(path), limit: None, name: 2**32}
        assert http.client.post(path, asked).refusal == (400, "field_invalid", name)
    slow = {limit: 200, "ignore_eos": True}
    assert words(http, path, {**slow, "t_max_predict_ms": 1e-6}) != words(http, path, slow)
    unlimited = {limit: None, "stop": ["a", "e"]}
    expected = words(http, path, unlimited if path != TEXTS else {**unlimited, limit: 400})
    assert words(http, path, {**unlimited, limit: -1}) == words(http, path, {**unlimited, "n_predict": -2}) == expected


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_every_penalty_of_llama_server_shows(http: HttpServed, path: str) -> None:
    plain = words(http, path, {})
    dry = {"dry_multiplier": 20, "dry_allowed_length": 0, "dry_base": 1.5, "dry_penalty_last_n": -1}
    for fields in ({"repeat_penalty": 3}, {"repeat_penalty": 3, "repeat_last_n": 1}, dry):
        assert words(http, path, fields) != plain, fields
    assert words(http, path, {"repeat_penalty": 3, "repeat_last_n": 1}) != words(http, path, {"repeat_penalty": 3})
    assert words(http, path, {**dry, "dry_sequence_breakers": [*"aiou."]}) != words(http, path, dry)
    assert words(http, path, {**dry, "dry_multiplier": 0}) == plain


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_two_names_of_one_option_must_agree(http: HttpServed, path: str) -> None:
    assert words(http, path, {"repeat_penalty": 2, "repetition_penalty": 2})
    for fields, param, other in (
        ({"repetition_penalty": 2, "repeat_penalty": 3}, "repeat_penalty", "repetition_penalty"),
        ({"temperature": 0.7, "do_sample": False}, "do_sample", "temperature"),
    ):
        reply = http.client.post(path, {**base_of(path), **fields})
        assert reply.refusal == (400, "field_invalid", param) and other in reply.error["message"]


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_harmless_names_are_ignored_and_listed(http: HttpServed, path: str) -> None:
    table, plain = TABLES[path], words(http, path, {})
    names = [name for name, row in table.items() if isinstance(row, Ignored)]
    harmless = {"keep_alive", "num_ctx", "num_keep", "id_slot", "provider", "timings_per_token", "client_metadata"}
    harmless |= {"prediction", "usage"}
    assert harmless <= {*names}
    for name in names:
        for value in ("5m", 4096, {"order": ["x"]}, [1], True):
            reply = http.client.post(path, {**base_of(path), name: value})
            assert (reply.status, reply.headers["imp-ignored"]) == (200, f'"{name}"'), name
    every = dict.fromkeys(names[:16], 1)
    reply = http.client.post(path, {**base_of(path), **every})
    assert reply.headers["imp-ignored"] == ", ".join(f'"{name}"' for name in every)
    assert words(http, path, every) == plain


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_a_wish_that_changes_no_answer_is_ignored_and_listed(http: HttpServed, path: str) -> None:
    wishes: dict[str, Any] = {"verbosity": "low", "service_tier": "flex", "include_reasoning": False}
    wishes["truncation"] = "auto"
    if path == RESPONSE:
        wishes |= {"text.verbosity": "high", "reasoning.summary": "detailed"}
    for name, value in wishes.items():
        field, _, member = name.partition(".")
        reply = http.client.post(path, {**base_of(path), field: {member: value} if member else value})
        assert (reply.status, reply.headers.get("imp-ignored")) == (200, f'"{name}"'), name
        wrong = http.client.post(path, {**base_of(path), field: {member: 7} if member else 7})
        assert wrong.refusal == (400, "field_invalid", name)


# Names that would change the answer, and a word of the advice.
CHANGING: list[tuple[dict[str, Any], str]] = [
    ({"mirostat": 2}, "min_p"),
    ({"tfs_z": 0.9}, "min_p"),
    ({"top_a": 0.2}, "min_p"),
    ({"xtc_probability": 0.5}, "no such sampler"),
    ({"dynatemp_range": 1}, "temperature"),
    ({"top_n_sigma": 1}, "min_p"),
    ({"repeat_last_n": 0}, "repetition_penalty"),
    ({"samplers": ["top_k"]}, "order"),
    ({"use_beam_search": True}, "imp samples"),
    ({"num_beams": 4}, "imp samples"),
    ({"chat_template": "{{ x }}"}, "model.overrides.chat_template"),
    ({"system": "Be brief."}, "system"),
    ({"options": {"top_k": 1}}, "into the request itself"),
    ({"reasoning_format": "none"}, "reasoning_content"),
    ({"raw": "x"}, "text"),
]


@pytest.mark.parametrize("path", TABLES)
def test_oai_14_names_that_change_the_answer_are_refused_with_advice(http: HttpServed, path: str) -> None:
    for fields, advice in CHANGING:
        (name,) = fields
        reply = http.client.post(path, {**base_of(path), **fields})
        assert reply.refusal == (400, "field_invalid", name), name
        assert advice in reply.error["message"], reply.error["message"]


def test_oai_14_every_name_of_another_server_leads_to_a_row(http: HttpServed) -> None:
    for table in (*TABLES.values(), INFILL):
        for name, row in table.items():
            assert not isinstance(row, Means) or row.of in table, name


def test_oai_14_thinking_is_turned_on_and_off_by_every_usual_name(tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(SHOWING)
    said = [{"role": "user", "content": "hi"}]
    on, off = "hi on think", "hi off"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"think": True}, on),
        ({"think": False}, off),
        ({"think": "high"}, "hi on think high"),
        ({"enable_thinking": True}, on),
        ({"enable_thinking": False}, off),
        ({"thinking": {"type": "enabled"}}, on),
        ({"thinking": {"type": "disabled"}}, off),
        ({"reasoning_effort": "low"}, "hi low"),
        ({"reasoning_effort": "none"}, "hi off none"),
        ({"reasoning": {"effort": "low"}}, "hi low"),
        ({"think": False, "chat_template_kwargs": {"enable_thinking": True}}, "hi on"),
    ]
    with serve_http(f"model.overrides.chat_template={template}") as http:

        def count(fields: dict[str, Any]) -> int:
            reply = http.chat(said, max_tokens=1, **fields)
            assert (reply.status, "imp-ignored" in reply.headers) == (200, False), (fields, reply.content)
            return int(reply.json["usage"]["prompt_tokens"])

        for fields, text in cases:
            tokens = http.client.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["count"]
            assert count(fields) == tokens, fields
            if "reasoning" not in fields:
                asked = http.client.post("/tokenize", {"messages": said, **fields})
                assert asked.json["count"] == tokens, fields
            if "reasoning_effort" not in fields:
                answer = http.client.post(RESPONSE, {"input": said, "max_output_tokens": 1, **fields}).json
                assert answer["usage"]["input_tokens"] == tokens, fields
        routed = http.chat(said, max_tokens=1, reasoning={"enabled": False, "exclude": True, "max_tokens": 9})
        assert routed.headers["imp-ignored"] == '"reasoning.exclude", "reasoning.max_tokens"'
        budget = http.chat(said, max_tokens=1, thinking={"type": "enabled", "budget_tokens": 1024})
        assert budget.headers["imp-ignored"] == '"thinking.budget_tokens"'
        for wrong, param in (
            ({"think": 1}, "think"),
            ({"thinking": {"type": "x"}}, "thinking.type"),
            ({"think": True, "enable_thinking": False}, "enable_thinking"),
        ):
            assert http.chat(said, **wrong).refusal == (400, "field_invalid", param)


def test_oai_14_thinking_that_the_template_does_not_know_is_listed(http: HttpServed) -> None:
    for fields in ({"think": False}, {"reasoning_effort": "high"}, {"enable_thinking": True}):
        (name,) = fields
        assert http.chat(SAID, max_tokens=1, **fields).headers["imp-ignored"] == f'"{name}"'


@pytest.mark.parametrize(
    ("template", "fields", "is_known"),
    [
        ("{{ enable_thinking }}", {"reasoning_effort": "none"}, True),
        ("{{ enable_thinking }}", {"reasoning_effort": "low"}, False),
        ("{{ reasoning_effort }}", {"think": "high"}, True),
        ("{{ reasoning_effort }}", {"think": True}, False),
        ("{{ thinking }}", {"enable_thinking": True}, True),
    ],
)
def test_oai_14_a_wish_is_known_if_the_template_has_one_of_its_variables(
    tmp_path: Path, template: str, fields: dict[str, Any], is_known: bool
) -> None:
    (tmp_path / "chat.jinja").write_text(template + "{{ messages[0].content }}")
    with serve_http(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}") as http:
        reply = http.chat("Hi", max_tokens=1, **fields)
        (name,) = fields
        assert reply.headers.get("imp-ignored") == (None if is_known else f'"{name}"')


def test_oai_14_unknown_members_of_messages_and_tools_are_ignored_and_listed(http: HttpServed) -> None:
    message = {**SAID[0], "id": "msg_1", "reasoning_details": [{"type": "reasoning.text"}]}
    reply = http.chat([message], max_tokens=1)
    named = '"messages[0].id", "messages[0].reasoning_details"'
    assert (reply.status, reply.headers["imp-ignored"]) == (200, named)
    assert http.client.post("/tokenize", {"messages": [message]}).headers["imp-ignored"] == named
    item = {"type": "message", **SAID[0], "internal": 1}
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "cache_control": {}}
    asked = {"input": [item], "tools": [tool], "tool_choice": "none", "max_output_tokens": 1}
    reply = http.client.post(RESPONSE, asked)
    assert (reply.status, reply.headers["imp-ignored"]) == (200, '"input[0].internal", "tools[0].cache_control"')


def test_oai_14_a_refusal_of_an_unknown_field_says_how_the_server_ignores_it(http: HttpServed) -> None:
    for fields in ({"nosuch": 1}, {"stream": True, "stream_options": {"nosuch": 1}}):
        message = http.chat(SAID, **fields).error["message"]
        assert message.count('http.unknown_fields = "ignore"') == 1, message
    many = http.chat(SAID, nosuch=1, other=1).error["message"]
    assert many.count("http.unknown_fields") == 1, many
