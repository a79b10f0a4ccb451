"""What templates get of messages: null content, and arguments as an object that can be appended to a text."""

from __future__ import annotations

import json

import pytest

from imp_service.text import ChatMessage, ChatPrompt, ChatTemplate, TemplateFailed
from support.plain_template import plain_render


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
