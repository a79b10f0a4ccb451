"""A model's dialect is found by parsing what its chat template writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from imp_service.config import load as load_config
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatMessage, ChatPrompt, TemplateInvalid
from imp_service.text.channels.dialects import DIALECTS
from imp_service.text.channels.find_dialect import opens_reasoning
from support.chat_templates import CHATML
from support.tiny_vocabularies import byte_level
from support.tool_templates import ROWS

TALK = (ChatMessage("user", "Where?"),)


def side_of(metadata: Mapping[str, object], dialect: str | None = None) -> TextSide:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    words = [] if dialect is None else [f"model.overrides.dialect={dialect}"]
    return TextSide(metadata, load_config(None, words).settings, len(tokens))


@pytest.mark.few(7)
@pytest.mark.parametrize("row", ROWS)
def test_chn_6_each_framing_is_found(row: str) -> None:
    dialect, metadata = ROWS[row]
    assert side_of(metadata).dialect.name == dialect


def test_chn_6_the_form_that_the_template_writes_comes_first() -> None:
    heads = {row: side_of(ROWS[row][1]).dialect.forms[0].head for row in ("mistral", "mistral-marked")}
    assert '"arguments"' in heads["mistral"]
    assert heads["mistral-marked"] == "$name[CALL_ID]$id[ARGS] "


@pytest.mark.parametrize("template", [None, CHATML, "{{ messages[0].tool_calls.nothing }}", "{% for"])
def test_chn_6_a_template_that_writes_no_call_is_plain(template: str | None) -> None:
    metadata = byte_level() if template is None else {**byte_level(), "tokenizer.chat_template": template}
    assert side_of(metadata).dialect.name == "plain"


def test_chn_6_the_settings_name_a_dialect() -> None:
    assert side_of({**byte_level(), "tokenizer.chat_template": CHATML}, dialect="llama3").dialect.name == "llama3"
    assert side_of(ROWS["mistral-marked"][1], dialect="mistral").dialect.forms[0].head.startswith("$name")
    assert side_of(ROWS["hermes"][1], dialect="plain").dialect.name == "plain"
    with pytest.raises(TemplateInvalid) as caught:
        side_of(byte_level(), dialect="other")
    assert caught.value.path == "model.overrides.dialect"
    assert f"known: {', '.join(DIALECTS)}" in caught.value.message


def test_chn_6_the_prompt_may_open_the_reasoning() -> None:
    for row, opened in (("thinking", True), ("qwen-xml", False)):
        side = side_of(ROWS[row][1])
        assert opens_reasoning(side.dialect, side.render(ChatPrompt(TALK)).text) == opened
