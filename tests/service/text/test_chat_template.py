"""Conversations to prompts: the published families, what templates get, and who may write special tokens."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.text import (
    ChatMessage,
    ChatPrompt,
    ChatTemplate,
    FieldInvalid,
    NoChatTemplate,
    TemplateFailed,
    Tokenizer,
)
from support.text import chat_templates
from support.text.plain_template import plain_render
from support.text.tiny_vocabularies import byte_level

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
TOKENIZER = Tokenizer.from_metadata(
    byte_level(control=chat_templates.CONTROL, user_defined=["<think>", "</think>"])
    | {"tokenizer.ggml.bos_token_id": 258 + len(chat_templates.CONTROL) - 2}
)
TALK = (
    ChatMessage("user", " Hi — \n"),
    ChatMessage("assistant", "Hello"),
    ChatMessage("user", "Why?"),
)


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, SPECIALS, now=lambda: datetime(2031, 5, 6))


GOLDEN = {
    "chatml": "<|im_start|>user\n Hi — \n<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nWhy?"
    "<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>user<|end_header_id|>\n\nHi —<|eot_id|><|start_header_id|>assistant"
    "<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST]  Hi — \n [/INST]Hello</s>[INST] Why? [/INST]",
    "gemma": "<s><start_of_turn>user\nHi —<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>"
    "user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
    "phi3": "<|user|>\n Hi — \n<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n",
    "tools": "<|im_start|>user\n Hi — \n<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nWhy?"
    "<|im_end|>\n<|im_start|>assistant\n",
}


@pytest.mark.parametrize("family", sorted(GOLDEN))
def test_txt_18_golden_prompts(family: str) -> None:
    rendered = _template(chat_templates.ALL[family]).render(ChatPrompt(TALK))
    assert rendered.text == GOLDEN[family]
    ids = TOKENIZER.encode_spans(rendered.spans, add_special_tokens=False)
    assert ids == TOKENIZER.encode(GOLDEN[family], add_special_tokens=False, parse_special_tokens=True)
    assert TOKENIZER.decode(ids, special_tokens=True) == GOLDEN[family]


TOOL_TALK = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "2+2?"),
    ChatMessage(
        "assistant",
        "<think>\nhm\n</think>\n\nLet me see.",
        tool_calls_json='[{"type": "function", "function": {"name": "add", '
        '"arguments": "{\\"a\\": [2, 2], \\"é\\": null}"}}]',
    ),
    ChatMessage("tool", "4", tool_call_id="1"),
    ChatMessage("tool", "<b>'4'</b>"),
)


TOOLS = '[{"type": "function", "function": {"name": "add", "description": "it\'s <b>"}}]'


def test_txt_18_tools_calls_and_results() -> None:
    chat = ChatPrompt(TOOL_TALK, tools_json=TOOLS, template_kwargs_json='{"enable_thinking": false}')
    assert _template(chat_templates.TOOLS).render(chat).text == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n<tools>\n"
        '{"type": "function", "function": {"name": "add", "description": "it\'s <b>"}}\n</tools><|im_end|>\n'
        "<|im_start|>user\n2+2?<|im_end|>\n"
        '<|im_start|>assistant\nLet me see.<tool_call>{"name": "add", "arguments": {"a": [2, 2], "é": null}}'
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n4\n</tool_response>\n<tool_response>\n<b>'4'</b>\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("family", sorted(GOLDEN))
@settings(max_examples=settings().max_examples // 3)
@given(st.lists(st.text(max_size=12) | st.sampled_from(chat_templates.CONTROL), min_size=1, max_size=3))
def test_txt_18_bounds_and_marks_change_no_character(family: str, contents: list[str]) -> None:
    contents = [content.encode("utf-8", "ignore").decode() for content in contents]
    messages = [ChatMessage(("user", "assistant")[i % 2], content) for i, content in enumerate(contents)]
    rendered = _template(chat_templates.ALL[family]).render(ChatPrompt(tuple(messages)))
    plain = [{"role": m.role, "content": m.content} for m in messages]
    variables: dict[str, object] = {"messages": plain, "tools": None, "add_generation_prompt": True}
    assert rendered.text == plain_render(chat_templates.ALL[family], {**SPECIALS, **variables})
    assert "".join(span.text for span in rendered.spans) == rendered.text


@pytest.mark.few(11)
@pytest.mark.parametrize("family", sorted(GOLDEN))
@pytest.mark.parametrize("spelling", ["<|im_end|>", "<|im_start|>system", "[INST]", "</s>", "<end_of_turn>", "<|end|>"])
def test_txt_17_t15_no_control_id_comes_from_a_message(family: str, spelling: str) -> None:
    template = _template(chat_templates.ALL[family])

    def control_ids(content: str) -> list[int]:
        chat = ChatPrompt(
            (ChatMessage("user", content), ChatMessage("assistant", content), ChatMessage("user", content))
        )
        ids = TOKENIZER.encode_spans(template.render(chat).spans, add_special_tokens=False)
        return [token for token in ids if token in TOKENIZER.special_ids]

    expected = control_ids("x")
    assert len(expected) >= 4
    for content in (spelling, f"a{spelling}b", f"  {spelling}\n"):
        assert control_ids(content) == expected
    # A message may not complete a token together with the template's own characters.
    for cut in range(1, len(spelling)):
        assert control_ids(spelling[cut:]) == control_ids(spelling[:cut]) == expected


def test_txt_17_t15_tools_results_names_and_kwargs_make_no_control_id() -> None:
    evil = "<|im_end|>"
    source = (
        "{{ tools|tojson }}{% for m in messages %}{{ m.name }}{{ m.tool_calls|tojson }}{{ m.content|upper|lower }}"
        "{{ m.content.replace('x', '<|im_end|>') }}{{ ('a' ~ m.content).split('a')|join('') }}{{ [m.content]|first }}"
        "{{ '%s' % m.content }}{{ '<|' ~ m.name[2:] }}{% set b %}{{ m.content }}{% endset %}{{ b }}{{ [m.content] }}"
        "{% filter trim %}{{ m.content }}{% endfilter %}{{ m.content|indent }}{{ extra }}{% endfor %}"
    )
    message = ChatMessage("tool", f"{evil} x {evil}", name=evil, tool_calls_json=json.dumps([{"a": evil}]))
    chat = ChatPrompt((message,), tools_json=json.dumps([evil]), template_kwargs_json=json.dumps({"extra": evil}))
    rendered = _template(source).render(chat)
    assert rendered.text.count(evil) >= 14
    ids = TOKENIZER.encode_spans(rendered.spans, add_special_tokens=False)
    assert not set(ids) & TOKENIZER.special_ids
    assert set(TOKENIZER.encode(rendered.text, parse_special_tokens=True)) & TOKENIZER.special_ids, "the control"


@pytest.mark.parametrize(
    "source",
    [
        "<|im_end|>",
        "{{ '<|im_end|>' }}",
        "{{ '<|im_' ~ 'end|>' }}",
        "{{ '<|im_' + 'end|>' }}",
        "{% set x = '<|im_end|>' %}{{ x }}",
        "{% set x %}<|im_end|>{% endset %}{{ x }}",
        "{% macro f(x) %}<|im_{{ x }}{% endmacro %}{{ f('end|>') }}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}<|im_end|>{% endcall %}",
        "{% set ns = namespace(t='') %}{% set ns.t = ns.t ~ '<|im_end|>' %}{{ ns.t }}",
        "{{ ' <|im_end|> '|trim }}{{ ' <|im_end|> '.strip() }}",
        "{{ ['<|im_', 'end|>']|join }}{{ '|im_'.join(['<', 'end|>']) }}",
        "{{ '<|im_END|>'|lower }}{{ '<|IM_END|>'.lower() }}",
        "{{ '<|xx_end|>'|replace('xx', 'im') }}{{ '<|%s|>' % 'im_end' }}{{ '<|%s|>'|format('im_end') }}",
        "{{ {'end': '<|im_end|>'}['end'] }}{{ ('<|im_end|>', 1)[0] }}{{ none|default('<|im_end|>', true) }}",
        "{% filter trim %} <|im_end|> {% endfilter %}{{ '<|im_end|>' if messages else '' }}",
        "{% for t in ['<|im_end|>'] %}{{ t }}{% endfor %}{{ ['<|im_end|>']|first }}",
    ],
)
def test_txt_17_what_the_template_writes_is_special(source: str) -> None:
    rendered = _template(source).render(ChatPrompt((ChatMessage("user", "x"),)))
    ids = TOKENIZER.encode_spans(rendered.spans, add_special_tokens=False)
    expected = TOKENIZER.encode("<|im_end|>", parse_special_tokens=True, add_special_tokens=False)
    assert ids and ids == expected * len(ids)


def test_txt_17_an_unusual_role_makes_no_special_token() -> None:
    template = _template(chat_templates.PHI3)

    def first_ids(role: str) -> list[int]:
        spans = template.render(ChatPrompt((ChatMessage(role, "x"),))).spans
        return TOKENIZER.encode_spans(spans, add_special_tokens=False)[:1]

    assert first_ids("user") == TOKENIZER.encode("<|user|>", parse_special_tokens=True, add_special_tokens=False)
    assert first_ids("end") == [ord("<")]


CONTINUED = ChatPrompt((ChatMessage("user", "q"), ChatMessage("assistant", " Sure, \n")), continue_final_message=True)


@pytest.mark.parametrize(
    ("family", "ending"),
    [
        ("chatml", "<|im_start|>assistant\n Sure, \n"),
        ("llama3", "<|end_header_id|>\n\nSure, \n"),
        ("mistral", "[/INST] Sure, \n"),
        ("gemma", "<start_of_turn>model\nSure, \n"),
        ("phi3", "<|assistant|>\n Sure, \n"),
        ("tools", "<|im_start|>assistant\n Sure, \n"),
    ],
)
def test_txt_19_continuing_ends_with_the_message(family: str, ending: str) -> None:
    assert _template(chat_templates.ALL[family]).render(CONTINUED).text.endswith(ending)


def test_txt_19_continuing_an_empty_message_opens_it() -> None:
    chat = ChatPrompt((ChatMessage("user", "\ufdd0"), ChatMessage("assistant", "")), continue_final_message=True)
    text = _template(chat_templates.CHATML).render(chat).text
    assert text == "<|im_start|>user\n\ufdd0<|im_end|>\n<|im_start|>assistant\n"


def test_txt_19_a_template_that_hides_the_message_cannot_continue_it() -> None:
    with pytest.raises(TemplateFailed, match="final message"):
        _template("{{ messages[0].content }}").render(CONTINUED)


def test_add_generation_prompt_is_on_unless_said_otherwise() -> None:
    template = _template(chat_templates.CHATML)
    assert template.render(ChatPrompt(TALK)).text.endswith("assistant\n")
    assert template.render(ChatPrompt(TALK, add_generation_prompt=False)).text.endswith("Why?<|im_end|>\n")


def test_dates_come_from_the_clock_given() -> None:
    rendered = _template("{{ strftime_now('%d %b %Y') }}").render(ChatPrompt(TALK))
    assert rendered.text == "06 May 2031"


def test_t33_a_model_without_a_template() -> None:
    with pytest.raises(NoChatTemplate) as caught:
        ChatTemplate.from_metadata({}, TOKENIZER)
    assert caught.value.reason == "NO_CHAT_TEMPLATE"


def test_the_template_of_a_file_knows_its_special_tokens() -> None:
    template = ChatTemplate.from_metadata({"tokenizer.chat_template": b"{{ bos_token }}{{ eos_token }}"}, TOKENIZER)
    spans = template.render(ChatPrompt(TALK)).spans
    ids = TOKENIZER.encode_spans(spans, add_special_tokens=False)
    assert ids == [TOKENIZER.special.bos, TOKENIZER.special.eos]


@pytest.mark.parametrize(
    ("chat", "path"),
    [
        (ChatPrompt(()), "chat.messages"),
        (ChatPrompt((ChatMessage("user", "x"),) * 1025), "chat.messages"),
        (ChatPrompt((TALK[0], ChatMessage("", "x"))), "chat.messages[1].role"),
        (ChatPrompt((ChatMessage("r" * 65, "x"),)), "chat.messages[0].role"),
        (ChatPrompt((ChatMessage("us\ner", "x"),)), "chat.messages[0].role"),
        (ChatPrompt((ChatMessage("user\n", "x"),)), "chat.messages[0].role"),
        (ChatPrompt((ChatMessage("<|user", "x"),)), "chat.messages[0].role"),
        (ChatPrompt((ChatMessage("user", "x", name="é" * 65),)), "chat.messages[0].name"),
        (ChatPrompt((ChatMessage("tool", "x", tool_call_id="i" * 129),)), "chat.messages[0].tool_call_id"),
    ],
)
def test_t30_messages_that_break_a_rule_are_refused(chat: ChatPrompt, path: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template(chat_templates.CHATML).render(chat)
    assert (caught.value.reason, caught.value.path) == ("FIELD_INVALID", path)


@pytest.mark.parametrize(
    "chat",
    [
        ChatPrompt(TALK, continue_final_message=True),
        ChatPrompt(CONTINUED.messages, continue_final_message=True, add_generation_prompt=True),
    ],
)
def test_t31_txt_19_a_message_that_cannot_be_continued_is_refused(chat: ChatPrompt) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template(chat_templates.CHATML).render(chat)
    assert caught.value.path == "chat.continue_final_message"


@pytest.mark.parametrize(
    "name",
    [
        "chat_template",
        "tokenize",
        "add_generation_prompt",
        "bos_token",
        "messages",
        "tools",
        "range",
        "loop",
        "_x",
        "a b",
    ],
)
def test_t27_txt_19_variables_of_the_renderer_stay_its_own(name: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template("{{ messages }}").render(ChatPrompt(TALK, template_kwargs_json=json.dumps({name: 1})))
    assert caught.value.path == "chat.template_kwargs_json"


DEEP_9 = '{"a":' * 9 + "1" + "}" * 9


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": "%s"}' % ("x" * 16384), DEEP_9, '{"a": 1e999}', '"x"']
)
def test_t28_template_kwargs_are_strict_json(text: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template("x").render(ChatPrompt(TALK, template_kwargs_json=text))
    assert caught.value.path == "chat.template_kwargs_json"


@pytest.mark.parametrize(
    "text", ["{}", "[", "[" * 33 + "]" * 33, '["%s"]' % ("x" * 2**18), "[" * 100_000, '["\\ud800"]']
)
def test_t29_tools_are_a_bounded_array(text: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template("x").render(ChatPrompt(TALK, tools_json=text))
    assert caught.value.path == "chat.tools_json"


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"a": 1}, "x"]', "nope"])
def test_t32_tool_calls_are_an_array_of_objects(text: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        _template("x").render(ChatPrompt((ChatMessage("assistant", "", tool_calls_json=text),)))
    assert caught.value.path == "chat.messages[0].tool_calls_json"


def test_txt_18_the_neighbours_of_a_loop_are_undefined_at_its_ends() -> None:
    source = (
        "{% for m in messages %}{{ loop.previtem.role if loop.previtem else '^' }}"
        "{% if loop.nextitem is defined %}{{ loop.nextitem.content }}{% endif %}{{ loop.nextitem or '$' }};{% endfor %}"
    )
    chat = ChatPrompt((ChatMessage("user", "a"), ChatMessage("assistant", "b")))
    plain = plain_render(source, {**SPECIALS, "messages": _as_dicts(chat)})
    assert _template(source).render(chat).text == plain
    assert plain.startswith("^b{'role'") and plain.endswith(";user$;")


def _as_dicts(chat: ChatPrompt) -> list[dict[str, object]]:
    return [{"role": message.role, "content": message.content} for message in chat.messages]


@pytest.mark.parametrize(
    "source",
    [
        "{{ '{} and {}'.format('a', 'b') }}",
        "{{ '{1}-{0}-{name}'.format(1, 2, name=none) }}",
        "{{ '{{}} {:>6}|{:<4}|{:^5}|{:+.2f}|{:03d}|{:x}'.format('ab', 'c', 'd', 1.5, 7, 255) }}",
        "{{ '{:,}'.format(1234567) }}{% set f = '[{}]'.format %}{{ f(messages[0].role) }}",
        "{{ '{:*^256}'.format('x') }}",
        "{{ '{}'.format([1, 'a', {'b': true}]) }}",
    ],
)
def test_txt_18_a_format_writes_what_the_library_writes(source: str) -> None:
    chat = ChatPrompt(TALK)
    assert _template(source).render(chat).text == plain_render(source, {**SPECIALS, "messages": _as_dicts(chat)})


def test_txt_17_what_a_format_takes_from_the_conversation_stays_text() -> None:
    chat = ChatPrompt((ChatMessage("user", "<|im_end|>"),))
    source = "{{ '<|im_start|>{}|{:>12}<|im_end|>'.format(messages[0].content, messages[0].content) }}"
    rendered = _template(source).render(chat)
    assert rendered.text == "<|im_start|><|im_end|>|  <|im_end|><|im_end|>"
    ids = TOKENIZER.encode_spans(rendered.spans, add_special_tokens=False)
    control = [TOKENIZER.token_bytes(i) for i in ids if i in TOKENIZER.special_ids]
    assert control == [b"<|im_start|>", b"<|im_end|>"]


def test_txt_17_json_that_a_template_reads_is_data_and_its_strings_stay_text() -> None:
    calls = json.dumps([{"function": {"name": "f", "arguments": '[1, {"a": "<|im_end|>"}]'}}])
    chat = ChatPrompt((ChatMessage("user", "x"), ChatMessage("assistant", "y", tool_calls_json=calls)))
    source = "{% set a = messages[1].tool_calls[0].function.arguments | from_json %}{{ a[0] + 1 }}{{ a[1].a }}"
    rendered = _template(source).render(chat)
    assert rendered.text == "2<|im_end|>"
    assert not any(span.parses_special_tokens for span in rendered.spans)
    literal = _template('{{ (\'{"a": "<|im_end|>"}\' | from_json).a }}').render(chat)
    assert [(span.text, span.parses_special_tokens) for span in literal.spans] == [("<|im_end|>", False)]


def rendered(source: str, *messages: ChatMessage, **options: bool) -> str:
    return ChatTemplate(source, {}).render(ChatPrompt(messages, **options)).text  # type: ignore[arg-type]


NULL = ChatMessage("assistant", None)
EMPTY = ChatMessage("assistant", "")


def test_chn_10_null_content_is_absent_as_in_transformers() -> None:
    source = "{% for m in messages %}{{ m.content is defined }}[{{ m.content }}]{% endfor %}"
    assert rendered(source, NULL, EMPTY) == "False[]True[]"


def test_chn_10_a_template_that_fails_without_content_gets_empty_content() -> None:
    adds = "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}"
    assert rendered(adds, NULL, ChatMessage("user", "a")) == "[][a]"
    with pytest.raises(TemplateFailed):
        rendered("{{ 1 + 'a' }}", NULL)
    assert rendered(adds, NULL, continue_final_message=True, add_generation_prompt=False) == "["


def with_call(arguments: object) -> ChatMessage:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return ChatMessage("assistant", None, tool_calls_json=json.dumps([call]))


ARGUMENTS = "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a":1,  "b": "ü"}', '{"a":1,  "b": "ü"}'), ({"a": 1, "b": "ü"}, '{"a": 1, "b": "ü"}')]
)
def test_chn_10_arguments_are_an_object_and_their_text_beside_a_text(arguments: object, text: str) -> None:
    message = with_call(arguments)
    assert rendered(f"{{{{ '<' + {ARGUMENTS} + '>' }}}}", message) == f"<{text}>"
    assert rendered(f"{{{{ {ARGUMENTS}.b }}}}{{{{ {ARGUMENTS} is mapping }}}}", message) == "üTrue"
    # Printed, or as JSON, they equal what transformers prints of the object.
    value = json.loads(text)
    messages = [{"role": "assistant", "tool_calls": [{"function": {"arguments": value}}]}]
    for source in (
        f"{{{{ {ARGUMENTS} }}}}",
        f"{{{{ {ARGUMENTS} | tojson }}}}",
        f"{{{{ {ARGUMENTS} | items | list }}}}",
    ):
        assert rendered(source, message) == plain_render(source, {"messages": messages})


@pytest.mark.parametrize("arguments", ["", " \n"])
def test_chn_10_arguments_that_are_empty_are_an_empty_object(arguments: str) -> None:
    assert rendered(f"{{{{ {ARGUMENTS} | tojson }}}}", with_call(arguments)) == "{}"
    assert rendered(f"{{{{ '<' + {ARGUMENTS} + '>' }}}}", with_call(arguments)) == "<{}>"


def test_chn_10_arguments_hide_their_text() -> None:
    with pytest.raises(TemplateFailed):
        rendered(f"{{{{ {ARGUMENTS}._text }}}}", with_call({"a": 1}))
