"""Every parameter of OpenAI's SDK has a row, and every row has a visible effect or a refusal that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai.types import completion_create_params, decision_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from imp_service.http_api.openai.fields import CHAT, COMPLETIONS, DECISIONS, RESPONSES, THINKING
from imp_service.http_api.requests.rows import Accepted, Refused, Sets, Table
from support.servers.http_served import HttpServed, serve_http

PROMPT = "the cat sat. the cat sat. the cat sat. the cat sat. the cat sat. the cat sat. the cat"
EOS = 2047
JSON_SCHEMA = "response_format.json_schema.schema"


@dataclass(frozen=True)
class Case:
    """A value of one field, and the other fields that it needs to have a visible effect."""

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    # The status and the code, if the field is refused.
    refusal: tuple[int, str] | None = None


def favoured(*tokens: int) -> dict[str, Any]:
    return {"logit_bias": dict.fromkeys(map(str, tokens), 100)}


FEW = favoured(*range(300, 306))
ENDS = favoured(EOS)
# This model reads no images. Other tests show what the numbers do with one that does.
NO_IMAGES = Case({"max_pixels": 4096}, refusal=(400, "field_invalid"))
COMMON: Mapping[str, Case] = {
    "temperature": Case(0),
    "top_p": Case(0.01),
    "top_k": Case(1),
    "min_p": Case(1),
    "typical_p": Case(0.01),
    "frequency_penalty": Case(2, FEW),
    "presence_penalty": Case(2, FEW),
    "repetition_penalty": Case(3, FEW),
    # As many entries as the limit allows.
    "logit_bias": Case({**dict.fromkeys(map(str, range(1024)), 0), "300": 100}),
    "seed": Case(8),
    "stop": Case(["a", "e", "t"]),
    "stop_token_ids": Case(list(range(40, 296))),
    "min_tokens": Case(5, ENDS),
    "ignore_eos": Case(True, ENDS),
    "include_stop_str_in_output": Case(True, {"stop": [" "]}),
    "time_limit": Case(1e-9, {"max_tokens": 200, "ignore_eos": True}),
    "n": Case(2),
    "skip_special_tokens": Case(False, {**ENDS, "ignore_eos": True}),
    "prompt_logprobs": Case(2),
    "return_token_ids": Case(True),
    "max_chunk_tokens": Case(1, {"stream": True}),
    "stream": Case(True),
    "stream_options": Case({"include_usage": True}, {"stream": True}),
    "response_format": Case({"type": "json_object"}),
    "structured_outputs": Case({"choice": ["yes", "no"]}),
    "grammar": Case('root ::= "yes"'),
    "model": Case("nosuch", refusal=(404, "model_not_found")),
    "cache_salt": Case("other"),
    "cache_prompt": Case(False),
    "max_tokens": Case(3),
    "repeat_last_n": Case(1, {**FEW, "repetition_penalty": 3}),
    "dry_multiplier": Case(9, {**FEW, "dry_allowed_length": 0}),
    "dry_base": Case(9, {**FEW, "dry_allowed_length": 0, "dry_multiplier": 0.1}),
    "dry_allowed_length": Case(0, {**FEW, "dry_multiplier": 9}),
    "dry_penalty_last_n": Case(1, {**FEW, "dry_multiplier": 9, "dry_allowed_length": 0}),
    "dry_sequence_breakers": Case([*"aiou."], {**FEW, "dry_multiplier": 9, "dry_allowed_length": 0}),
    "format": Case("json"),
    "thinking_token_budget": Case(9, refusal=(400, "not_supported_by_model")),
}
REFUSED_BY_RESPONSES = {name for name, row in RESPONSES.items() if not isinstance(row, Sets)}
CASES: Mapping[str, tuple[Table, Mapping[str, Case]]] = {
    "/v1/chat/completions": (
        CHAT,
        {
            **COMMON,
            "messages": Case([{"role": "user", "content": "another"}]),
            "max_completion_tokens": Case(3, {"max_tokens": None}),
            "logprobs": Case(True),
            "top_logprobs": Case(3, {"logprobs": True}),
            "add_generation_prompt": Case(False),
            "best_of": Case(2, refusal=(400, "field_invalid")),
            "mm_processor_kwargs": NO_IMAGES,
            "continue_final_message": Case(
                True, {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}]}
            ),
        },
    ),
    "/v1/completions": (
        COMPLETIONS,
        {
            **COMMON,
            "prompt": Case("another"),
            "logprobs": Case(2),
            "echo": Case(True),
            "best_of": Case(2, refusal=(400, "field_invalid")),
            # Its vocabulary has no tokens for it.
            "suffix": Case("the end", refusal=(400, "not_supported_by_model")),
        },
    ),
    "/v1/responses": (
        RESPONSES,
        {
            **{name: case for name, case in COMMON.items() if name in RESPONSES and name not in REFUSED_BY_RESPONSES},
            "input": Case("another"),
            "instructions": Case("Be brief."),
            "max_output_tokens": Case(3),
            "include": Case(["message.output_text.logprobs"]),
            "top_logprobs": Case(3),
            "text": Case({"format": {"type": "json_object"}}),
            "metadata": Case({"a": "b"}),
            "time_limit": Case(1e-9, {"max_output_tokens": 200, "ignore_eos": True}),
            "cache_salt": Case("third"),
            "mm_processor_kwargs": NO_IMAGES,
        },
    ),
}
# Other tests show the effects of these fields: the order of the queue, a template's use of its variables, guesses, and
# prompts of which a part is evaluated, and streams that go on.
ELSEWHERE = {
    "resume",
    "speculation",
    "max_draft_tokens",
    "sparse_prefill",
    "sparse_prefill_keep",
    "sparse_prefill_backbone",
    "priority",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
    "reasoning",
    *THINKING,
    "tools",
    "tool_choice",
    "parallel_tool_calls",
}


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http("model.overrides.default_sampling.temperature=1", "model.overrides.default_sampling.top_p=1") as it:
        yield it


def base_of(path: str) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"input": PROMPT, "seed": 7, "max_output_tokens": 24}
    asks = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in path else {"prompt": PROMPT}
    return {**asks, "seed": 7, "max_tokens": 24}


def outcome(http: HttpServed, path: str, body: dict[str, Any]) -> Any:
    """Returns all that a caller sees except names and times; for a stream, its events."""
    if body.get("stream"):
        events = http.client.stream(path, body)
        return [{name: each[name] for name in ("choices", "usage") if name in each} for each in events.objects]
    reply = http.client.post(path, body)
    assert reply.status == 200, reply.content
    found = reply.json
    if path == "/v1/responses":
        items = [{**each, "id": None} for each in found["output"]]
        return items, {name: found[name] for name in ("usage", "status", "metadata")}
    return {name: found[name] for name in found if name not in ("id", "created", "system_fingerprint")}


def names_of_sdk(module: Any, *names: str) -> set[str]:
    return {name for each in names for name in getattr(module, each).__annotations__}


def test_oai_1_every_parameter_of_the_sdk_has_a_row() -> None:
    chat = names_of_sdk(
        chat_create_params,
        "CompletionCreateParamsBase",
        "CompletionCreateParamsNonStreaming",
        "CompletionCreateParamsStreaming",
    )
    completion = names_of_sdk(
        completion_create_params,
        "CompletionCreateParamsBase",
        "CompletionCreateParamsNonStreaming",
        "CompletionCreateParamsStreaming",
    )
    response = names_of_sdk(response_create_params, "ResponseCreateParamsBase", "ResponseCreateParamsStreaming")
    assert len(chat) >= 36 and len(completion) >= 17 and len(response) >= 33
    assert chat - CHAT.keys() == set() and completion - COMPLETIONS.keys() == set()
    assert response - RESPONSES.keys() == set()
    decision = names_of_sdk(decision_create_params, "DecisionCreateParams")
    assert len(decision) >= 6 and decision - DECISIONS.keys() == set()


@pytest.mark.long
@pytest.mark.parametrize("path", CASES)
def test_oai_1_every_field_that_sets_something_shows(http: HttpServed, path: str) -> None:
    table, cases = CASES[path]
    base = base_of(path)
    outcome(http, path, base)  # From here on all requests find the same cached prefix.
    for name, case in cases.items():
        body = {**base, **case.beside, name: case.value}
        if case.refusal is not None:
            assert http.client.post(path, body).refusal[:2] == case.refusal, name
        else:
            assert outcome(http, path, {**base, **case.beside}) != outcome(http, path, body), name
    assert {name for name, row in table.items() if isinstance(row, Sets)} - ELSEWHERE == cases.keys()


# Values that request the default behaviour, and one that requests something else.
ALWAYS_ANYWAY: Mapping[str, tuple[list[Any], Any]] = {
    "user": (["someone", ""], 7),
    "safety_identifier": (["someone"], 7),
    "prompt_cache_key": (["x"], 7),
    "prompt_cache_retention": (["24h"], 7),
    "prompt_cache_options": ([{}], "x"),
    "service_tier": (["auto", "default"], "fast"),
    "store": ([False, True], "yes"),
    "modalities": ([["text"]], ["text", "audio"]),
    "verbosity": (["medium"], "none"),
    "mirostat": ([0], 1),
    "tfs_z": ([1, 1.0], 0.5),
    "top_a": ([0, 0.0], 0.5),
    "top_n_sigma": ([-1, -1.0, 0, 0.0], 2),
    "xtc_probability": ([0, 0.0], 0.5),
    "dynatemp_range": ([0, 0.0], 0.5),
    "use_beam_search": ([False], True),
    "num_beams": ([1], 2),
    "truncation": (["disabled"], "none"),
    "include_reasoning": ([True], "x"),
    "separate_reasoning": ([True], "x"),
    "reasoning_format": (["auto", "deepseek", "parsed"], "raw"),
}
CHAT_ANYWAY = {
    **ALWAYS_ANYWAY,
    "metadata": ([{"a": "b"}, {}], "x"),
    "echo": ([False], True),
    "raw": ([False], True),
}
TEXT_ANYWAY = {**CHAT_ANYWAY, "raw": ([True], False)}
del TEXT_ANYWAY["echo"]
ANYWAY: Mapping[str, Mapping[str, tuple[list[Any], Any]]] = {
    "/v1/chat/completions": CHAT_ANYWAY,
    "/v1/completions": TEXT_ANYWAY,
    "/v1/responses": {
        **ALWAYS_ANYWAY,
        "background": ([False], True),
        "raw": ([False], True),
        "stream_options": ([{}], {"include_usage": True}),
    },
}


@pytest.mark.long
@pytest.mark.parametrize("path", CASES)
def test_oai_1_fields_that_ask_for_what_happens_anyway_change_nothing(http: HttpServed, path: str) -> None:
    table, _ = CASES[path]
    assert {name for name, row in table.items() if isinstance(row, Accepted)} == ANYWAY[path].keys()
    base = base_of(path)
    outcome(http, path, base)
    expected = outcome(http, path, base)
    for name, (values, other) in ANYWAY[path].items():
        for value in values:
            assert outcome(http, path, {**base, name: value}) == expected, name
        assert http.client.post(path, {**base, name: other}).refusal == (400, "field_invalid", name)


@pytest.mark.long
@pytest.mark.parametrize("path", CASES)
def test_oai_1_fields_that_are_not_built_are_refused_by_name(http: HttpServed, path: str) -> None:
    table, _ = CASES[path]
    for name, row in table.items():
        if isinstance(row, Refused):
            for value in ("x", {"a": 1}, [1], 0, False, True):
                reply = http.client.post(path, {**base_of(path), name: value})
                assert reply.refusal == (400, "field_invalid", name), value
                assert row.instead in reply.error["message"]


@pytest.mark.parametrize("path", CASES)
def test_oai_1_null_is_an_unset_field(http: HttpServed, path: str) -> None:
    table, _ = CASES[path]
    base = base_of(path)
    outcome(http, path, base)
    nulls = dict.fromkeys(table.keys() - base.keys())
    assert outcome(http, path, {**base, **nulls}) == outcome(http, path, base)


# Bodies with unknown members, and their paths.
NESTED: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y", "nosuch": 1, "id": "a"}],
            "structured_outputs": {"choice": ["a"], "nosuch": 1},
        },
        ["messages[1].id", "messages[1].nosuch", "structured_outputs.nosuch"],
    ),
    (
        "/v1/responses",
        {
            "input": [{"role": "user", "content": "x", "nosuch": 1}],
            "reasoning": {"summary": "auto", "nosuch": {}},
            "text": {"nosuch": 1},
        },
        ["input[0].nosuch", "reasoning.nosuch", "text.nosuch"],
    ),
]


def without_nosuch(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nosuch(each) for each in value]
    if isinstance(value, dict):
        return {name: without_nosuch(each) for name, each in value.items() if name not in ("nosuch", "id")}
    return value


def test_txt_35_a_header_names_the_hints_of_an_output_format(http: HttpServed) -> None:
    schema = {"const": 1, "uniqueItems": True}
    for name, value, place in (
        ("response_format", {"type": "json_object", "schema": schema}, "response_format.schema"),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}, JSON_SCHEMA),
        ("structured_outputs", {"json": schema}, "structured_outputs.json"),
    ):
        reply = http.chat(max_tokens=8, **{name: value})
        assert (reply.status, reply.choice["message"]["content"]) == (200, "1")
        assert reply.headers["imp-ignored"] == f'"{place}#/uniqueItems"'
    strict = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1}, "strict": True}}
    assert "imp-ignored" not in http.chat(max_tokens=8, response_format=strict).headers


@pytest.mark.long
def test_oai_1_unknown_fields_are_ignored_where_the_settings_say_so() -> None:
    with serve_http("http.unknown_fields=ignore") as http:
        reply = http.chat(max_tokens=1, nosuch=1, other={"a": 1})
        assert (reply.status, reply.headers["imp-ignored"]) == (200, '"nosuch", "other"')
        assert "imp-ignored" not in http.chat(max_tokens=1).headers
        inner = {"name": "n", "schema": {"const": 1}, "shema": {}, "strict": None}
        wanted = {"type": "json_schema", "json_schema": inner, "other": None}
        reply = http.chat(max_tokens=8, response_format=wanted)
        assert (reply.headers["imp-ignored"], reply.choice["message"]["content"]) == (
            '"response_format.json_schema.shema"',
            "1",
        )
        assert http.chat(max_tokens=1, temperature="x").refusal == (400, "field_invalid", "temperature")
        for path, body, ignored in NESTED:
            reply = http.client.post(path, {**base_of(path), **body})
            assert (reply.status, reply.headers["imp-ignored"]) == (200, ", ".join(f'"{each}"' for each in ignored))
            assert "imp-ignored" not in http.client.post(path, {**base_of(path), **without_nosuch(body)}).headers
        reply = http.chat([{"role": "user", "content": "x", "nosuch": 1}, {"role": "user", "content": 7}])
        assert reply.refusal == (400, "field_invalid", "messages[1].content")
        # Clients choose the names: they cannot break a header.
        reply = http.chat(max_tokens=1, **{"é\r\nx: y": 1, "y" * 10_000: 1})
        assert (reply.status, len(reply.headers["imp-ignored"]) < 200) == (200, True)


def test_smp_28_a_header_lists_the_sampler_in_force() -> None:
    with serve_http("model.overrides.default_sampling.top_p=0.9") as http:
        asked = http.chat(max_tokens=1, temperature=0.5, min_p=0.1)
        assert asked.headers["imp-sampling"] == "temperature=0.5, top_p=0.9, min_p=0.1"
        plain = http.chat(max_tokens=1, temperature=1, top_k=0, top_p=1, min_p=0)
        assert plain.headers["imp-sampling"] == "plain"
