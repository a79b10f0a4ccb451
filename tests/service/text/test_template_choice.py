"""Which of a model's chat templates a conversation uses."""

from __future__ import annotations

import json

import pytest

from imp_service.text import (
    ChatMessage,
    ChatPrompt,
    FieldInvalid,
    NoChatTemplate,
    TemplateChoice,
    TemplateInvalid,
    TextLimits,
    Tokenizer,
)
from support.text.tiny_vocabularies import byte_level

TOKENIZER = Tokenizer.from_metadata(byte_level())
TALK = (ChatMessage("user", "Hi"),)
TOOLS = '[{"type": "function", "function": {"name": "f"}}]'
TEMPLATES = {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": b"tools {{ tools | length }}"}


def test_txt_30_the_template_for_tools_is_used_where_tools_are_given() -> None:
    choice = TemplateChoice(TEMPLATES, TOKENIZER, TextLimits())
    assert (choice.source, choice.compile_all()) == ("plain", [])
    for tools, text in ((TOOLS, "tools 1"), ("", "plain"), (" [ ] ", "plain")):
        chat = ChatPrompt(TALK, tools_json=tools)
        assert choice.of(chat).render(chat).text == text
    # The caller cannot choose.
    chat = ChatPrompt(TALK, template_kwargs_json='{"chat_template_name": "tool_use"}')
    assert choice.of(chat).render(chat).text == "plain"
    with pytest.raises(FieldInvalid):
        choice.of(chat).render(ChatPrompt(TALK, template_kwargs_json='{"chat_template": "tool_use"}'))


def test_txt_30_settings_name_the_template() -> None:
    with_tools = ChatPrompt(TALK, tools_json=TOOLS)
    named = TemplateChoice(TEMPLATES, TOKENIZER, TextLimits(), name="default")
    assert named.of(with_tools).render(with_tools).text == "plain"
    named = TemplateChoice(TEMPLATES, TOKENIZER, TextLimits(), name="tool_use")
    assert named.of(with_tools).render(with_tools).text == "tools 1" and named.source == "tools {{ tools | length }}"
    from_file = TemplateChoice(TEMPLATES, TOKENIZER, TextLimits(), file=b"file")
    assert from_file.of(with_tools).render(with_tools).text == from_file.source == "file"
    with pytest.raises(TemplateInvalid) as caught:
        TemplateChoice(TEMPLATES, TOKENIZER, TextLimits(), name="rag")
    assert caught.value.path == "model.overrides.chat_template_name"
    assert caught.value.message == "rag: no such template, known: default, tool_use"


def test_txt_30_named_templates_without_a_default_are_listed() -> None:
    named = {"tokenizer.chat_template.rag": "r", "tokenizer.chat_template.tool_use": "t"}
    choice = TemplateChoice(named, TOKENIZER, TextLimits())
    with pytest.raises(NoChatTemplate, match=r"chat_template_name selects one of: rag, tool_use"):
        choice.of(ChatPrompt(TALK))
    with pytest.raises(NoChatTemplate, match="the model has no chat template"):
        TemplateChoice({}, TOKENIZER, TextLimits()).of(ChatPrompt(TALK))


def test_txt_30_the_list_in_the_configuration_of_a_directory_is_the_same_choice() -> None:
    plain, with_tools = ChatPrompt(TALK), ChatPrompt(TALK, tools_json=TOOLS)
    listed = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools {{ tools | length }}"}]
    files = {"model_type": "qwen3", "tokenizer_config.json": json.dumps({"chat_template": listed}).encode()}
    choice = TemplateChoice(files, TOKENIZER, TextLimits())
    assert [choice.of(chat).render(chat).text for chat in (plain, with_tools)] == ["plain", "tools 1"]
    named = TemplateChoice(files, TOKENIZER, TextLimits(), name="default")
    assert named.of(with_tools).render(with_tools).text == "plain"


def test_txt_30_each_template_is_compiled_and_named_in_its_error() -> None:
    broken = TEMPLATES | {"tokenizer.chat_template.tool_use": "{% if %}"}
    choice = TemplateChoice(broken, TOKENIZER, TextLimits())
    with pytest.raises(TemplateInvalid) as caught:
        choice.compile_all()
    assert caught.value.path == "tokenizer.chat_template.tool_use"
    plain = ChatPrompt(TALK)
    assert choice.of(plain).render(plain).text == "plain", "the other one still serves"
    bad_file = TemplateChoice({}, TOKENIZER, TextLimits(), file=b"\xff")
    with pytest.raises(TemplateInvalid) as caught:
        bad_file.compile_all()
    assert caught.value.path == "model.overrides.chat_template"
    assert bad_file.source == "\ufffd", "what it is can be told"
    assert TemplateChoice({}, TOKENIZER, TextLimits()).compile_all() == []
