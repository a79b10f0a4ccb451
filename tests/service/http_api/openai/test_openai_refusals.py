"""Every bad body is refused before anything runs, with its status, its code, and the caller's name of the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from imp_service.api.errors import FieldsInvalid
from imp_service.config import read_settings
from imp_service.http_api.openai import fields
from imp_service.http_api.openai.requests import read_chat, read_completion
from imp_service.http_api.openai.response_requests import read_response
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.rows import Table
from imp_service.serving.served_model import ServedModel
from support.servers.http_served import HttpServed

INVALID = "field_invalid"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAID = [{"role": "user", "content": "Hi"}]
DEEP = "[" * 65 + "]" * 65


def reading(body: dict[str, Any], table: Table) -> Reading:
    """Returns the fields of a body."""
    return Reading(body, table, ignores_unknown=False)


def refused(http: HttpServed, path: str, body: Any) -> tuple[int, str | None, str | None]:
    """Returns the refusal of a body, and checks that nothing was evaluated."""
    before = http.served.stats().n_steps
    reply = http.client.post(path, body)
    assert reply.status >= 400, reply.content
    assert http.served.stats().n_steps == before
    return reply.refusal


NO_JSON: dict[str, bytes] = {
    "no UTF-8": b'{"model": "\xff"}',
    "no JSON": b"{model: 1}",
    "NaN": b'{"temperature": NaN}',
    "key twice": b'{"n": 1, "n": 1}',
    "65 levels": f'{{"messages": {DEEP}}}'.encode(),
    "lone surrogate": b'{"user": "\\ud800"}',
    "array": b"[]",
    "empty": b"",
    "number of 5000 digits": b'{"seed": ' + b"9" * 5000 + b"}",
    "more after it": b"{} {}",
}


@pytest.mark.few(10)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize"])
@pytest.mark.parametrize("name", NO_JSON)
def test_htp_5_a_body_that_is_no_json_is_refused(http: HttpServed, name: str, path: str) -> None:
    assert refused(http, path, NO_JSON[name]) == (400, INVALID, "body")


# Fields of a chat, and the path in the refusal.
CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": "text"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [123]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 7, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": SAID * 4097}, "messages"),
    ({"messages": [*SAID, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
    ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "messages[0].images"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "no role\n", "content": "x"}]}, "messages[0].role"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ({"max_completion_tokens": -2}, "max_completion_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 3}, "logprobs"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ({"documents": {}}, "documents"),
    ({"documents": ["a"]}, "documents"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
]
# Fields of chats and completions.
BOTH: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 9}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": True}, "n"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": 101}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"seed": -(2**63) - 1}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"seed": 10**400}, "seed"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": ["a", "b", 3]}, "stop[2]"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": {}}, "stop"),
    ({"stop_token_ids": [2048]}, "stop_token_ids[0]"),
    ({"stop_token_ids": ["1"]}, "stop_token_ids[0]"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"max_tokens": 2**32}, "max_tokens"),
    ({"max_tokens": 1.0}, "max_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"time_limit": 0}, "time_limit"),
    ({"logit_bias": {"2048": 1}}, "logit_bias[2048]"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias[1]"),
    ({"logit_bias": {"1": 101}}, "logit_bias[1]"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, "logit_bias"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"cache_salt": "x" * 65}, "cache_salt"),
    ({"priority": 101}, "priority"),
    ({"max_chunk_tokens": 0}, "max_chunk_tokens"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"stream": True, "stream_options": {"nosuch": True}}, "stream_options.nosuch"),
    ({"response_format": {"type": "sound"}}, "response_format.type"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_object", "schema": 123}}, "response_format.schema"),
    ({"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}}, "response_format.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 123}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "https://example.com/x"}}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "x" * 66_000}}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": 7, "schema": {}}}},
        "response_format.json_schema.name",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes", "schema": {}}}},
        "response_format.json_schema.strict",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"description": [], "schema": {}}}},
        "response_format.json_schema.description",
    ),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"grammar": "root ::= nosuch"}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"nosuch": 1}}, "structured_outputs.nosuch"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
    ({"grammar": "root ::= nosuch"}, "grammar"),
    ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "grammar"),
    ({"model": 7}, "model"),
    ({"store": "yes"}, "store"),
    ({"service_tier": "fast"}, "service_tier"),
    ({"user": 7}, "user"),
    ({"metadata": "x"}, "metadata"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"guided_json": {}, "guided_regex": "a"}, "guided_regex"),
]
TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": 7}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt[1]"),
    ({"prompt": [[1], ["x"]]}, "prompt[1][0]"),
    ({"prompt": [[1], [True]]}, "prompt[1][0]"),
    ({"prompt": ["x"] * 65}, "prompt"),
    ({"prompt": [2048]}, "prompt[0]"),
    ({"prompt": [-1]}, "prompt[0]"),
    ({"prompt": [[1], [2048]]}, "prompt[1][0]"),
    ({"prompt": [[1], []]}, "prompt[1]"),
    ({"prompt": ["a", "", "b"]}, "prompt[1]"),
    ({"prompt": ["a", "x" * (2**20 + 1)]}, "prompt[1]"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"best_of": 2}, "best_of"),
    ({"best_of": 0}, "best_of"),
    ({"echo": 1}, "echo"),
]


def name_of(value: Any) -> str:
    return json.dumps(value)[:60]


@pytest.mark.few(13)
@pytest.mark.parametrize(("fields", "param"), [*CHATS, *BOTH], ids=name_of)
def test_htp_5_a_bad_chat_names_the_callers_field(http: HttpServed, fields: dict[str, Any], param: str) -> None:
    assert refused(http, CHAT, {"messages": SAID, **fields}) == (400, INVALID, param)


@pytest.mark.few(12)
@pytest.mark.parametrize(("fields", "param"), [*TEXTS, *BOTH], ids=name_of)
def test_htp_5_a_bad_completion_names_the_callers_field(http: HttpServed, fields: dict[str, Any], param: str) -> None:
    assert refused(http, COMPLETIONS, {"prompt": "x", **fields}) == (400, INVALID, param)


ASSISTANT = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    ("path", "param"),
    [
        # A template that fails, and a character that the vocabulary does not have.
        ("chat", "messages"),
        ("text", "messages"),
        ("chat.messages[1].name", "messages[1].name"),
        ("chat.messages[1].tool_calls_json", "messages[1].tool_calls"),
    ],
)
def test_htp_5_an_error_about_the_conversation_names_the_callers_field(path: str, param: str) -> None:
    served = ServedModel(read_settings(None, []).settings, 1000, 1000, 512, ("imp-demo",))
    body = {"messages": [*SAID, ASSISTANT]}
    parsed = read_chat(reading(body, fields.CHAT), served, Caller())
    assert parsed.caller_path(path, 0) == param
    items = read_response(reading({"input": SAID}, fields.RESPONSES), served, Caller())
    assert items.caller_path(path, 0).startswith("input")
    texts = read_completion(reading({"prompt": ["a", "b"]}, fields.COMPLETIONS), served, Caller())
    assert texts.caller_path("text", 1) == "prompt[1]"


def test_htp_5_a_bad_conversation_to_tokenize_names_the_callers_field(http: HttpServed) -> None:
    body = {"messages": [{"role": "no role\n", "content": "x"}]}
    assert refused(http, "/tokenize", body) == (400, INVALID, "messages[0].role")


def test_htp_5_a_field_that_is_not_set_is_named_after_one_with_a_longer_name() -> None:
    served = ServedModel(read_settings(None, []).settings, 1000, 1000, 512, ("imp-demo",))
    with pytest.raises(FieldsInvalid) as caught:
        read_completion(reading({"prompt_cache_key": 7}, fields.COMPLETIONS), served, Caller())
    assert [each.path for each in caught.value.violations] == ["prompt_cache_key", "prompt"]


def test_htp_5_all_that_is_wrong_is_named_at_once(http: HttpServed) -> None:
    wrong = {"temperature": "1", "stop": ["a", "b", 3], "n": 9, "messages": [{"role": "user"}], "nosuch": 1}
    wrong |= {"top_p": 7, "logit_bias": {"5000": 1}, "response_format": {"type": "sound"}, "store": 1}
    reply = http.client.post(CHAT, wrong)
    assert reply.refusal == (400, INVALID, "temperature")
    fields = ("temperature", "stop[2]", "n", "messages[0].content", "nosuch", "top_p", "logit_bias[5000]")
    for field in (*fields, "response_format.type", "store"):
        assert f"{field}: " in reply.error["message"], field


@pytest.mark.parametrize("messages", [[{"role": 7, "content": "x"}], [{"role": "user", "content": 7}], 7])
def test_htp_5_a_field_of_the_wrong_kind_is_named_alone(http: HttpServed, messages: Any) -> None:
    reply = http.client.post(CHAT, {"messages": messages})
    assert reply.refusal[:2] == (400, INVALID)
    assert reply.error["message"].startswith(f"{reply.error['param']}: 7, expected ")
    assert ";" not in reply.error["message"]


def test_htp_5_many_violations_are_named_to_the_last_or_counted(http: HttpServed) -> None:
    few, many = ({f"nosuch{i}": i for i in range(n)} for n in (60, 900))
    message = http.client.post(CHAT, {"messages": SAID, **few}).error["message"]
    assert [text.partition(":")[0] for text in message.split("; ")] == list(few)
    assert [i for i, text in enumerate(message.split("; ")) if "http.unknown_fields" in text] == [0]
    message = http.client.post(CHAT, {"messages": SAID, **many}).error["message"]
    *named, rest = message.split("; ")
    assert len(message) < 4200 and all(text.endswith(": unknown field") for text in named[1:])
    assert rest == f"and {900 - len(named)} more"


def test_oai_11_a_null_is_an_unset_field_whatever_its_name(http: HttpServed) -> None:
    # vLLM's own client sends these, and so do OpenAI clients generated from other schemas.
    for path, body in ((CHAT, {"messages": SAID}), (COMPLETIONS, {"prompt": "x"}), ("/tokenize", {"prompt": "x"})):
        assert http.client.post(path, {**body, "kv_transfer_params": None, "temprature": None}).status == 200
        assert http.client.post(path, {**body, "kv_transfer_params": {}}).refusal[0] == 400


def test_oai_11_a_seed_of_minus_one_is_no_seed(http: HttpServed) -> None:
    def said(seed: int | None) -> str:
        return str(http.complete(temperature=2, max_tokens=24, seed=seed).choice["text"])

    assert len({said(-1) for _ in range(4)}) > 1 < len({said(None) for _ in range(4)})
    assert len({said(1) for _ in range(4)}) == 1


def test_oai_11_an_empty_suffix_is_none(http: HttpServed) -> None:
    asked = {"max_tokens": 4, "seed": 1}
    assert http.complete(suffix="", **asked).choice["text"] == http.complete(**asked).choice["text"]
    assert http.complete(suffix=" end").refusal[:2] == (400, "not_supported_by_model")


def test_oai_11_every_seed_of_64_bits_is_one(http: HttpServed) -> None:
    """A negative seed is the one with the same bits."""

    def said(seed: int) -> str:
        return str(http.complete(temperature=2, max_tokens=24, seed=seed).choice["text"])

    seeds = (-2, -(2**63), 2**63 - 1, 2**64 - 1, 0)
    assert len({said(seed) for seed in seeds}) == len(seeds)
    for seed in seeds:
        assert said(seed) == said(seed) == said(seed % 2**64)


def test_oai_11_a_top_p_of_zero_keeps_the_most_likely_token(http: HttpServed) -> None:
    asked = {"max_tokens": 12, "seed": 5}
    greedy = http.complete(temperature=0, **asked).choice["text"]
    assert http.complete(temperature=2, **asked).choice["text"] != greedy
    assert http.complete(temperature=2, top_p=0, **asked).choice["text"] == greedy


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 1}, None),
        ({"best_of": None}, None),
        ({"best_of": None, "n": 2}, None),
        ({"best_of": 2, "n": 2}, None),
        ({"best_of": 2}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
    ],
)
def test_oai_11_best_of_may_ask_for_what_happens_anyway(
    http: HttpServed, fields: dict[str, Any], param: str | None
) -> None:
    reply = http.complete(max_tokens=1, **fields)
    assert (reply.status == 200) if param is None else (reply.refusal == (400, INVALID, param))


def test_htp_5_an_unknown_field_is_reported_with_the_nearest_name(http: HttpServed) -> None:
    for path, body in ((CHAT, {"messages": SAID}), (COMPLETIONS, {"prompt": "x"})):
        reply = http.client.post(path, {**body, "temprature": 1})
        assert reply.refusal == (400, "unknown_parameter", "temprature")
        assert "did you mean temperature?" in reply.error["message"]
    reply = http.client.post("/tokenize", {"prompt": "x", "promt": "x"})
    assert reply.refusal == (400, "unknown_parameter", "promt")


@pytest.mark.parametrize("name", ["function_calling", "kv_transfer_params", "mirostat_taus"])
def test_htp_5_no_field_that_is_refused_or_does_nothing_is_proposed(http: HttpServed, name: str) -> None:
    reply = http.chat(SAID, **{name: 1})
    assert reply.refusal == (400, "unknown_parameter", name)
    assert "did you mean" not in reply.error["message"]


@pytest.mark.parametrize(
    ("path", "body", "right"),
    [
        (CHAT, {"prompt": "x"}, "`messages`"),
        (CHAT, {"input": "x"}, "`messages`"),
        (COMPLETIONS, {"messages": SAID}, "`/v1/chat/completions`"),
        (COMPLETIONS, {"input": "x"}, "`prompt`"),
        ("/v1/responses", {"messages": SAID}, "`input`"),
    ],
    ids=name_of,
)
def test_htp_5_the_input_of_another_path_is_answered_with_the_right_one(
    http: HttpServed, path: str, body: dict[str, Any], right: str
) -> None:
    reply = http.client.post(path, body)
    (name,) = body
    assert reply.refusal == (400, INVALID, name) and right in reply.error["message"], reply.error


SCHEMA = {"name": "n", "description": "d", "schema": {"const": 1}, "strict": None}


@pytest.mark.parametrize(
    ("wanted", "param", "hint"),
    [
        ({"type": "json_schema", "json_schema": SCHEMA}, None, ""),
        ({"type": "json_object", "schema": {"const": 1}, "json_schema": None}, None, ""),
        ({"type": "text", "strict": True}, "response_format.strict", ""),
        ({"type": "json_object", "shema": {}}, "response_format.shema", "did you mean schema?"),
        ({"type": "json_schema", "json_schema": SCHEMA, "name": "n"}, "response_format.name", ""),
        (
            {"type": "json_schema", "json_schema": {**SCHEMA, "strct": True}},
            "response_format.json_schema.strct",
            "did you mean strict?",
        ),
        ({"type": "json_schema", "json_schema": {**SCHEMA, "type": "object"}}, "response_format.json_schema.type", ""),
    ],
    ids=name_of,
)
def test_htp_5_an_output_format_has_no_unknown_members(
    http: HttpServed, wanted: dict[str, Any], param: str | None, hint: str
) -> None:
    reply = http.chat(max_tokens=4, response_format=wanted)
    if param is None:
        assert reply.status == 200
    else:
        assert reply.refusal == (400, "unknown_parameter", param) and hint in reply.error["message"]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"type": "text", "strict": True}, "strict"),
        ({"type": "json_object", "shema": {}}, "shema"),
        ({**SCHEMA, "type": "json_schema", "json_schema": {}}, "json_schema"),
    ],
    ids=name_of,
)
def test_htp_5_the_format_of_a_response_has_no_unknown_members(
    http: HttpServed, wanted: dict[str, Any], name: str
) -> None:
    reply = http.client.post("/v1/responses", {"input": "x", "text": {"format": wanted}})
    assert reply.refusal == (400, "unknown_parameter", f"text.format.{name}")
    assert reply.error["message"].count(name) == 1


def test_htp_5_a_prompt_beyond_the_context_tells_both_numbers(http: HttpServed) -> None:
    for reply in (http.complete([300] * 600), http.chat("a " * 1000)):
        assert reply.refusal == (400, "context_length_exceeded", None)
        assert "512" in reply.error["message"]


def test_oai_5_clients_that_read_messages_see_that_the_context_is_exceeded(http: HttpServed) -> None:
    # langchain-openai 1.7 raises ContextOverflowError for this message, and litellm 1.106 ContextWindowExceededError.
    body = {"messages": [{"role": "user", "content": "a " * 1000}]}
    for stream in (False, True):
        reply = http.client.post(CHAT, {**body, "stream": stream})
        assert reply.refusal == (400, "context_length_exceeded", None)
        assert "Input tokens exceed the configured limit" in reply.error["message"]


def test_htp_5_an_unknown_model_is_reported_with_those_that_are_served(http: HttpServed) -> None:
    reply = http.chat(model="nosuch")
    assert reply.refusal == (404, "model_not_found", None) and "imp-demo" in reply.error["message"]
    for name in ("imp-demo", "imp demo", "", None):
        assert http.chat(model=name, max_tokens=1).status == 200
