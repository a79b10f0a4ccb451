"""Questions and parts of content in conversations of the library, and names that other tools have for its options."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from imp_service import ChatMessage, ChatPrompt, FieldsInvalid, LanguageModel
from imp_service.api.arguments import GROUPS, chat_of
from imp_service.api.keywords import keyword_of
from imp_service.api.other_names import ADVICE, SAME
from imp_service.http_api.openai.fields import CHAT, COMPLETIONS
from imp_service.http_api.openai.messages import content_reader
from imp_service.http_api.requests.rows import Means, Row, Sets
from imp_service.http_api.requests.values import WrongValue

QUESTION = "What is 2 plus 3?"


def test_lib_11_a_question_is_a_message_of_the_user(library: LanguageModel) -> None:
    assert chat_of(QUESTION, {}) == ChatPrompt((ChatMessage("user", QUESTION),))
    messages = [{"role": "user", "content": QUESTION}]
    expected = library.chat(messages, max_tokens=12, temperature=0).result().token_ids
    assert library.chat(QUESTION, max_tokens=12, temperature=0).result().token_ids == expected
    assert library.chat("What is 4 plus 4?", max_tokens=12, temperature=0).result().token_ids != expected


PARTS: dict[str, list[dict[str, Any]]] = {
    "one": [{"type": "text", "text": "Hello"}],
    "several": [
        {"type": "text", "text": "What is "},
        {"type": "input_text", "text": "3"},
        {"type": "output_text", "text": "?"},
    ],
    "a refusal": [{"type": "refusal", "refusal": "No."}],
    "other members": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "none": [],
}


@pytest.mark.parametrize("case", PARTS)
def test_lib_11_parts_of_content_are_the_text_that_http_reads(case: str) -> None:
    found = chat_of([{"role": "user", "content": PARTS[case]}], {})
    assert found.messages == (ChatMessage("user", content_reader(None)(PARTS[case])),)
    assert found.messages[0].content == "".join(each.get("text", each.get("refusal")) for each in PARTS[case])


WRONG_PARTS: dict[str, tuple[Any, str]] = {
    "audio": (
        {"type": "input_audio", "input_audio": {"data": "a"}},
        ".type: 'input_audio' is not supported: messages are text and images",
    ),
    "no type": ({"text": "a"}, ".type: None is not supported: messages are text and images"),
    "no text": ({"type": "text"}, ".text: NoneType, expected a text"),
    "no dict": (7, ": int, expected a text, an Image, or a dict with type and text"),
}


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_lib_11_a_part_that_is_no_text_is_refused_as_http_does(library: LanguageModel, case: str) -> None:
    part, message = WRONG_PARTS[case]
    with pytest.raises(FieldsInvalid) as caught:
        library.chat([{"role": "user", "content": [{"type": "text", "text": "a"}, part]}])
    assert caught.value.message == f"chat.messages[0].content[1]{message}"
    with pytest.raises(WrongValue):
        content_reader(None)([part])


def advice(library: LanguageModel, name: str) -> str:
    """Returns what the error of chat() says after the name."""
    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as caught:
        library.chat(QUESTION, **options)
    return str(caught.value).partition(repr(name))[2]


def option_of(row: Row, table: dict[str, Row]) -> str:
    """Returns the option of imp that a field sets, with its group."""
    while isinstance(row, Means):
        row = table[row.of]
    return row.option if isinstance(row, Sets) else ""


KEYWORDS = inspect.signature(LanguageModel.chat).parameters
# The fields that HTTP has for options, unless they are keywords too.
FIELDS = sorted(
    {name for table in (CHAT, COMPLETIONS) for name, row in table.items() if isinstance(row, Sets | Means)}
    - KEYWORDS.keys()
    # What the address says: the path, and what only a stream of events has.
    - {"prompt", "stream_options"}
)


def test_lib_2_the_library_has_advice_for_every_field_of_http(library: LanguageModel) -> None:
    assert len(FIELDS) > 30
    assert [name for name in FIELDS if not advice(library, name)] == []


@pytest.mark.parametrize("table", [CHAT, COMPLETIONS], ids=["chat", "completions"])
def test_lib_2_the_advice_names_the_option_that_the_field_sets(library: LanguageModel, table: Any) -> None:
    named = {}
    for name in table.keys() & set(FIELDS):
        group, _, option = option_of(table[name], table).rpartition(".")
        known = {each.name: keyword_of(each) for each in fields(GROUPS[group])} if group in GROUPS else {}
        named |= {name: known[option]} if option in known else {}
    assert named.keys() >= {"repeat_penalty", "do_sample", "max_new_tokens", "include_stop_str_in_output"}
    assert {name: keyword for name, keyword in named.items() if keyword not in advice(library, name)} == {}


def test_lib_2_names_of_other_tools_are_no_keywords_and_what_they_mean_is() -> None:
    assert not {*SAME, *ADVICE} & {*KEYWORDS, "timeout"} - {"tools", "documents", "messages"}
    assert set(SAME.values()) <= KEYWORDS.keys()
    assert not SAME.keys() & ADVICE.keys()


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "stream": "iterate over the generation",
        "temp": "'temperature'",
        "do_sample": "temperature=0",
        "response_format": "json_schema=SCHEMA",
        "guided_json": "'json_schema'",
        "n": "'num_sequences'",
        "stop_sequences": "'stop'",
        "max_length": "'max_tokens'",
        "repeat_penalty": "'repetition_penalty'",
        "sampling_params": "each option is a keyword",
        "enable_thinking": "template_kwargs",
        "schema": "'json_schema'",
    }.items(),
)
def test_lib_2_habits_of_other_tools_are_answered(library: LanguageModel, name: str, expected: str) -> None:
    assert expected in advice(library, name)
