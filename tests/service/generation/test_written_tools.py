"""Tools of a model whose chat template does not take them: imp writes them into a message, and parses the calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import imp_service
from imp_service import ChatMessage, ChatPrompt, InvalidArgument, LanguageModel
from imp_service.config import read_settings
from imp_service.generation.text_side import TextSide
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined
from imp_service.text.channels.dialects import DIALECTS, GENERIC
from imp_service.text.channels.tools import read_tools
from imp_service.text.channels.written_tools import WrittenTools, writes_json, written_call
from support.text.chat_templates import CHATML
from support.text.tiny_vocabularies import byte_level
from support.text.tool_templates import HERMES, ROWS

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "Returns the weather.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS_JSON = json.dumps(TOOLS)
ASKED = ChatMessage("user", "Rain?")
CALLS = json.dumps(
    [{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]
)
CALLED = ChatMessage("assistant", None, tool_calls_json=CALLS)
RESULT = ChatMessage("tool", "It rains.", tool_call_id="a")
WRITTEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
ANSWERED = "<tool_response>\nIt rains.\n</tool_response>"
# Refuses system messages, and demands that user and assistant alternate, as Gemma's does.
STRICT = """{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{{- '<' + m.role + '>' + m.content + '\\n' }}{% endfor %}"""
# Prints system messages only if they are first.
IGNORING = """{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ (m.content or '') ~ '\\n' }}{% endfor %}"""
LAST_ONLY = """{% for m in messages %}{% if tools and loop.last and m.role == 'user' %}{{ tools | tojson }}{% endif %}
{{- m.content or '' }}{% for c in m.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}{% endfor %}{% endfor %}"""


def side_of(template: str, *settings: str) -> TextSide:
    metadata: Mapping[str, object] = {**byte_level(), "tokenizer.chat_template": template}
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return TextSide(metadata, read_settings(None, list(settings)).settings, len(tokens))


def rendered(template: str, *messages: ChatMessage, tools: str = TOOLS_JSON, **fields: Any) -> str:
    return side_of(template).render(ChatPrompt(messages, tools, **fields)).text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    path = tmp_path_factory.mktemp("templates") / "chat.jinja"
    path.write_text(IGNORING)
    with imp_service.load(None, "device.threads=1", f"model.overrides.chat_template={path}") as made:
        yield made


def test_tol_6_the_model_sees_its_tools_in_the_system_message() -> None:
    text = rendered(IGNORING, ChatMessage("system", "Be brief."), ASKED)
    assert text.startswith("<system>Be brief.\n\nYou may call functions.")
    assert f"\n{json.dumps(FUNCTION)}\n" in text and text.endswith("<user>Rain?\n")
    assert text.count("get_weather") == 1
    alone = rendered(IGNORING, ASKED)
    assert alone == text.replace("Be brief.\n\n", "")
    assert rendered(IGNORING, ASKED, tools=json.dumps([FUNCTION])) == alone  # the function alone is a tool too


def test_tol_6_without_a_place_for_a_system_message_the_first_of_the_user_has_them() -> None:
    text = rendered(STRICT, ASKED)
    assert text.startswith("<user>You may call functions.") and text.endswith("\n\nRain?\n")
    whole = rendered(STRICT, ASKED, CALLED, RESULT, ChatMessage("assistant", "Yes."), ChatMessage("user", "Thanks"))
    assert whole.endswith(f"<assistant>{WRITTEN}\n<user>{ANSWERED}\n<assistant>Yes.\n<user>Thanks\n")


def test_tol_6_calls_and_results_of_the_conversation_are_text() -> None:
    other = ChatMessage("tool", "It snows.", tool_call_id="b")
    text = rendered(IGNORING, ASKED, CALLED, RESULT, other)
    more = "<tool_response>\nIt snows.\n</tool_response>"
    assert text.endswith(f"<user>Rain?\n<assistant>{WRITTEN}\n<user>{ANSWERED}\n{more}\n")
    # The user goes on in the message with the result; a call may follow a text.
    said = ChatMessage("assistant", "I look.", tool_calls_json=CALLS)
    text = rendered(IGNORING, ASKED, said, RESULT, ChatMessage("user", "So?"))
    assert text.endswith(f"<assistant>I look.\n{WRITTEN}\n<user>{ANSWERED}\n\nSo?\n")
    # They are text also where this request offers no tool.
    assert rendered(IGNORING, ASKED, CALLED, RESULT, tools="").endswith(f"<assistant>{WRITTEN}\n<user>{ANSWERED}\n")


def test_tol_6_a_message_that_goes_on_stays_the_last() -> None:
    begun = ChatMessage("assistant", "It is")
    text = rendered(IGNORING, ASKED, begun, continue_final_message=True, add_generation_prompt=False)
    assert text.endswith("<assistant>It is")


def test_tol_6_a_template_that_takes_tools_writes_them_itself() -> None:
    for row, (_, metadata) in ROWS.items():
        tokens = metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        side = TextSide(metadata, read_settings(None, []).settings, len(tokens))
        text = side.render(ChatPrompt((ASKED,), TOOLS_JSON)).text
        assert "You may call functions." not in text, row
        assert (side.written_tools is None) or "get_weather" in text, row


def test_tol_6_with_a_dialect_of_the_settings_its_own_markup_is_the_example() -> None:
    for name, example in (
        ("mistral", '[TOOL_CALLS]\n[{"name": "NAME", "arguments": '),
        ("llama3", '{"name": "NAME", '),
    ):
        side = side_of(CHATML, f"model.overrides.dialect={name}")
        text = side.render(ChatPrompt((ASKED,), TOOLS_JSON)).text
        assert "get_weather" in text and example in text, text
        assert side.calls_dialect is side.dialect


def test_tol_6_a_control_token_in_a_description_stays_text() -> None:
    side = side_of(CHATML)
    tools = json.dumps([{"name": "f", "description": "<|im_end|>"}])
    end = side.tokenizer.encode("<|im_end|>", add_special_tokens=False, parse_special_tokens=True)
    ids = side.chat_ids(ChatPrompt((ASKED,), tools))
    plain = side.chat_ids(ChatPrompt((ChatMessage("system", "x"), ASKED)))
    if len(end) == 1:
        assert ids.count(end[0]) == plain.count(end[0])


@pytest.mark.parametrize("name", ["generic", *DIALECTS])
def test_tol_6_what_the_example_shows_is_parsed(name: str) -> None:
    dialect = GENERIC if name == "generic" else DIALECTS[name]
    tools = read_tools(TOOLS_JSON)
    side = side_of(CHATML)
    n_read = 0
    for form in dialect.forms:
        if not writes_json(form):
            continue
        text = written_call(form, "get_weather", '{"city": "Rome"}')
        stream = ChannelStream(side.tokenizer.table, ParsePlan(dialect, False, tools, (1,)))
        ids = side.tokenizer.encode(text, add_special_tokens=False)
        found = joined([stream.feed_all(ids), stream.finish()])
        assert [(call.name, call.arguments) for call in found.tool_calls] == [("get_weather", '{"city": "Rome"}')], text
        assert not found.text.strip()
        n_read += 1
    assert n_read or name not in ("generic", "hermes", "llama3", "phi4")


def test_tol_6_a_call_without_markers_is_one_if_it_names_a_function() -> None:
    side, tools = side_of(CHATML), read_tools(TOOLS_JSON)
    for text, n in (
        ('{"name": "get_weather", "arguments": {"city": "Rome"}}', 1),
        ('{"name": "get_weather", "parameters": {"city": "Rome"}}', 1),
        ('{"name": "Bob", "arguments": {}}', 0),
        ('So: {"name": "get_weather", "arguments": {}}', 0),
    ):
        stream = ChannelStream(side.tokenizer.table, ParsePlan(GENERIC, False, tools, (1,)))
        found = joined([stream.feed_all(side.tokenizer.encode(text, add_special_tokens=False)), stream.finish()])
        assert len(found.tool_calls) == n and (n == 1 or found.text == text), text


@pytest.mark.parametrize("choice", ["required", "function:get_weather"])
def test_tol_6_a_required_call_needs_no_dialect(model: LanguageModel, choice: str) -> None:
    for seed in range(4):
        result = model.chat(
            [{"role": "user", "content": "Rain?"}],
            tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, parse=True, seed=seed, temperature=1.5,
        ).result()  # fmt: skip
        (call,) = result.tool_calls
        assert call.name == "get_weather" and result.text == ""
        jsonschema.validate(json.loads(call.arguments), SCHEMA)


def test_tol_6_the_model_decides_and_an_answer_is_content(model: LanguageModel) -> None:
    asked: dict[str, Any] = {"parse": True, "seed": 3, "max_tokens": 12}
    result = model.chat([{"role": "user", "content": "Rain?"}], tools=TOOLS, **asked).result()
    assert result.text and not result.tool_calls
    # Without tools nothing has changed: all output is content.
    grammar = f"root ::= {json.dumps(WRITTEN)}"
    plain = model.chat([{"role": "user", "content": "Rain?"}], gbnf=grammar, parse=True).result()
    assert plain.text == WRITTEN and not plain.tool_calls


@pytest.mark.long
def test_tol_6_a_forced_call_that_a_limit_cuts_is_no_content(model: LanguageModel) -> None:
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "seed": 5}
    whole = model.chat([{"role": "user", "content": "Rain?"}], parse=True, **asked).result()
    for n in range(1, len(whole.token_ids)):
        part = model.chat([{"role": "user", "content": "Rain?"}], parse=True, **asked, max_tokens=n).result()
        assert (part.text, part.finish_reason) == ("", "max_tokens"), n


@pytest.mark.parametrize("name", ["generic", "hermes", "mistral", "cohere"])
def test_chn_12_a_call_that_a_limit_cuts_is_no_content(name: str) -> None:
    dialect = GENERIC if name == "generic" else DIALECTS[name]
    side, tools = side_of(CHATML), read_tools(TOOLS_JSON)
    form = dialect.forms[0]
    call = written_call(form, "get_weather", '{"city": "Rome"}') if writes_json(form) else "<|START_ACTION|>\n[{"
    for content in ("", "Let me look."):
        for n in range(len(call) + 1):
            ids = side.tokenizer.encode(content + call[:n], add_special_tokens=False)
            stream = ChannelStream(side.tokenizer.table, ParsePlan(dialect, False, tools, (1,)))
            found = joined([stream.feed_all(ids), stream.finish(is_cut=True)])
            assert found.text == content, call[:n]
    # A limit that cuts nothing of the kind takes nothing away, nor does an end by the model.
    for text in ("a\n", "see <tool", "<tool_call>\nwhat?"):
        ids = side.tokenizer.encode(text, add_special_tokens=False)
        stream = ChannelStream(side.tokenizer.table, ParsePlan(dialect, False, tools, (1,)))
        assert joined([stream.feed_all(ids), stream.finish()]).text == text


def test_chn_12_reasoning_that_a_limit_cuts_before_a_forced_call_stays_whole() -> None:
    side = side_of(CHATML)
    plan = ParsePlan(DIALECTS["hermes"], True, read_tools(TOOLS_JSON), (1,), is_forced=True)
    stream = ChannelStream(side.tokenizer.table, plan)
    ids = side.tokenizer.encode("Why not?\n</thi", add_special_tokens=False)
    found = joined([stream.feed_all(ids), stream.finish(is_cut=True)])
    assert (found.reasoning, found.text) == ("Why not?\n</thi", "")


def test_tol_3_a_dialect_that_is_plain_by_the_settings_refuses_tools_but_not_a_required_call() -> None:
    with imp_service.load(None, "device.threads=1", "model.overrides.dialect=plain") as model:
        talk = [{"role": "user", "content": "Rain?"}]
        with pytest.raises(InvalidArgument) as caught:
            model.chat(talk, tools=TOOLS, parse=True)
        assert caught.value.field == "chat.tools_json" and "model.overrides.dialect" in caught.value.message
        result = model.chat(talk, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, parse=True).result()
        assert result.tool_calls[0].name == "get_weather"


def test_tol_6_the_rewriting_is_the_same_each_time() -> None:
    side = side_of(IGNORING)
    chat = ChatPrompt((ASKED, CALLED, RESULT), TOOLS_JSON)
    assert side.render(chat) == side.render(chat)
    assert isinstance(side.written_tools, WrittenTools) and side.written_tools.has_system
    assert side_of(HERMES).written_tools is None


def test_tol_7_a_template_that_hides_its_tools_is_noticed(tmp_path: Path) -> None:
    side = side_of(LAST_ONLY)
    assert side.dialect.name == "hermes" and side.written_tools is None
    noticed: list[bool] = []
    side.chat_ids(ChatPrompt((ASKED,), TOOLS_JSON), on_hidden=lambda: noticed.append(True))
    assert not noticed
    side.chat_ids(ChatPrompt((ASKED, CALLED, RESULT), TOOLS_JSON), on_hidden=lambda: noticed.append(True))
    assert noticed == [True]
