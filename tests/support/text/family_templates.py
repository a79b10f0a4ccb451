"""Our own chat templates. Each writes reasoning, content and calls as the models of one family do."""

from __future__ import annotations

from dataclasses import dataclass

from support.text.tiny_vocabularies import byte_level


@dataclass(frozen=True)
class Family:
    """A family's dialect, the template's text for an assistant's message, and the control tokens in it.

    In `answer` R is the reasoning, C the content, and CALLS a loop over `call` in `calls`.
    """

    dialect: str
    answer: str
    control: tuple[str, ...]
    # The header before an answer, and the end of a turn, which the model writes as its last token.
    begin: str = "<|assistant|>"
    end: str = "<|eot|>"
    # The form of a call's id.
    call_id: str = "a1b2c3d4{n}"
    # The template concatenates arguments with text, so they must be text.
    adds_arguments: bool = False

    @property
    def macro(self) -> str:
        """Returns the answer as a Jinja macro that takes a message."""
        return (
            "{%- macro answer(message) -%}\n"
            "{%- set reasoning = message.reasoning_content or '' %}{% set content = message.content or '' %}\n"
            "{%- set calls = message.tool_calls or [] %}\n" + self.answer + "{%- endmacro %}\n"
        )

    @property
    def template(self) -> str:
        """The whole template."""
        return (
            self.macro
            + "{%- if tools %}{{ '<|system|>' }}{{ tools | tojson }}{{ '\\n' }}{% endif %}\n"
            + "{%- for message in messages %}\n"
            + "{%- if message.role == 'assistant' %}"
            + f"{{{{ '{self.begin}' }}}}{{{{ answer(message) }}}}{{{{ '{self.end}' }}}}\n"
            + "{%- else %}{{ '<|' + message.role + '|>' + message.content + '\\n' }}{% endif %}\n"
            + "{%- endfor %}\n"
            + f"{{%- if add_generation_prompt %}}{{{{ '{self.begin}' }}}}{{% endif %}}"
        )

    @property
    def metadata(self) -> dict[str, object]:
        """Returns the metadata of a model file with this template."""
        # The last one is the end of a turn.
        return {**byte_level(control=(*self.control, self.end)), "tokenizer.chat_template": self.template}


_THINK = "{%- if reasoning %}{{ '<think>\\n' + reasoning + '\\n</think>\\n\\n' }}{% endif %}\n"
_CALLS = "{%- for call in calls %}{% set name = call.function.name %}{% set arguments = call.function.arguments %}\n"
_AS_TEXT = "(value if value is string else value | tojson)"
# Macros that write one value.
_GEMMA_VALUE = """{%- macro gemma(value) -%}
{%- if value is string %}{{ '<|"|>' + value + '<|"|>' }}
{%- elif value is boolean %}{{ 'true' if value else 'false' }}
{%- elif value is mapping %}{{ '{' }}{% for key, item in value | dictsort %}
{{- key + ':' }}{{ gemma(item) }}{{ '' if loop.last else ',' }}{% endfor %}{{ '}' }}
{%- elif value is sequence %}{{ '[' }}{% for item in value %}
{{- gemma(item) }}{{ '' if loop.last else ',' }}{% endfor %}{{ ']' }}
{%- else %}{{ value }}{% endif %}
{%- endmacro %}
"""
_PYTHON_VALUE = """{%- macro python(value) -%}
{%- if value is none %}{{ 'None' }}
{%- elif value is boolean %}{{ 'True' if value else 'False' }}
{%- elif value is mapping %}{{ '{' }}{% for key, item in value.items() %}
{{- key | tojson }}{{ ': ' }}{{ python(item) }}{{ '' if loop.last else ', ' }}{% endfor %}{{ '}' }}
{%- elif value is sequence and value is not string %}{{ '[' }}{% for item in value %}
{{- python(item) }}{{ '' if loop.last else ', ' }}{% endfor %}{{ ']' }}
{%- else %}{{ value | tojson }}{% endif %}
{%- endmacro %}
"""

FAMILIES: dict[str, Family] = {
    "harmony": Family(
        "harmony",
        "{%- if reasoning %}{{ '<|channel|>analysis<|message|>' + reasoning }}\n"
        "{{- '<|end|><|start|>assistant' }}{% endif %}\n"
        "{%- if content %}\n"
        "{{- '<|channel|>' + ('commentary' if calls else 'final') + '<|message|>' + content }}\n"
        "{{- '<|end|><|start|>assistant' if calls else '' }}{% endif %}\n"
        + _CALLS
        + "{{- ' to=functions.' + name + '<|channel|>commentary json<|message|>' }}{{ arguments | tojson }}\n"
        "{{- '<|call|>' + ('' if loop.last else '<|start|>assistant') }}{% endfor %}\n",
        (*("<|start|>", "<|channel|>", "<|message|>"), *("<|constrain|>", "<|end|>", "<|call|>")),
        begin="<|start|>assistant",
        end="<|return|>",
    ),
    "harmony-constrained": Family(
        "harmony",
        "{%- if reasoning %}{{ '<|channel|>analysis<|message|>' + reasoning }}\n"
        "{{- '<|end|><|start|>assistant' }}{% endif %}\n"
        "{%- if content %}\n"
        "{{- '<|channel|>' + ('commentary' if calls else 'final') + '<|message|>' + content }}\n"
        "{{- '<|end|><|start|>assistant' if calls else '' }}{% endif %}\n"
        + _CALLS
        + "{{- '<|channel|>commentary to=functions.' + name + ' <|constrain|>json<|message|>' }}\n"
        "{{- arguments | tojson }}{{ '<|call|>' + ('' if loop.last else '<|start|>assistant') }}{% endfor %}\n",
        (*("<|start|>", "<|channel|>", "<|message|>"), *("<|constrain|>", "<|end|>", "<|call|>")),
        begin="<|start|>assistant",
        end="<|return|>",
    ),
    "deepseek-fenced": Family(
        "deepseek",
        _THINK
        + "{{- content }}{% if calls %}{{ '<｜tool▁calls▁begin｜>' }}{% endif %}\n"
        + _CALLS
        + "{{- '' if loop.first else '\\n' }}"
        "{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + name + '\\n```json\\n' + arguments\n"
        "+ '\\n```<｜tool▁call▁end｜>' }}{% endfor %}\n"
        "{%- if calls %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}\n",
        (
            *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        ),
        begin="<｜Assistant｜>",
        end="<｜end▁of▁sentence｜>",
        adds_arguments=True,
    ),
    "deepseek-bare": Family(
        "deepseek",
        _THINK
        + "{{- content }}{% if calls %}{{ '<｜tool▁calls▁begin｜>' }}{% endif %}\n"
        + _CALLS
        + "{{- '<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' }}{{ arguments | tojson }}\n"
        "{{- '<｜tool▁call▁end｜>' }}{% endfor %}{% if calls %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}\n",
        (
            *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        ),
        begin="<｜Assistant｜>",
        end="<｜end▁of▁sentence｜>",
    ),
    "glm": Family(
        "glm",
        _THINK + "{{- content }}\n" + _CALLS + "{{- '\\n<tool_call>' + name + '\\n' }}\n"
        "{%- for key, value in arguments.items() %}\n"
        "{{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' + " + _AS_TEXT + " + '</arg_value>\\n' }}\n"
        "{%- endfor %}{{ '</tool_call>' }}{% endfor %}\n",
        (
            *("<think>", "</think>", "<tool_call>", "</tool_call>"),
            *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        end="<|user|>",
    ),
    "glm-short": Family(
        "glm",
        _THINK + "{{- content }}\n" + _CALLS + "{{- '<tool_call>' + name }}\n"
        "{%- for key, value in arguments.items() %}\n"
        "{{- '<arg_key>' + key + '</arg_key><arg_value>' + " + _AS_TEXT + " + '</arg_value>' }}\n"
        "{%- endfor %}{{ '</tool_call>' }}{% endfor %}\n",
        (
            *("<think>", "</think>", "<tool_call>", "</tool_call>"),
            *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        end="<|user|>",
    ),
    "kimi": Family(
        "kimi",
        _THINK
        + "{{- content }}{% if calls %}{{ '<|tool_calls_section_begin|>' }}{% endif %}\n"
        + _CALLS
        + "{{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}{{ arguments | tojson }}\n"
        "{{- '<|tool_call_end|>' }}{% endfor %}{% if calls %}{{ '<|tool_calls_section_end|>' }}{% endif %}\n",
        (
            *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        ),
        end="<|im_end|>",
        call_id="functions.{name}:{n}",
    ),
    "minimax": Family(
        "minimax",
        _THINK
        + "{{- content }}{% if calls %}{{ '\\n<minimax:tool_call>\\n' }}{% endif %}\n"
        + _CALLS
        + "{{- '<invoke name=\"' + name + '\">\\n' }}\n"
        "{%- for key, value in arguments.items() %}\n"
        "{{- '<parameter name=\"' + key + '\">' + " + _AS_TEXT + " + '</parameter>\\n' }}\n"
        "{%- endfor %}{{ '</invoke>\\n' }}{% endfor %}{% if calls %}{{ '</minimax:tool_call>' }}{% endif %}\n",
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        end="[e~[",
    ),
    "cohere": Family(
        "cohere",
        "{%- if reasoning %}{{ '<|START_THINKING|>' + reasoning + '<|END_THINKING|>' }}{% endif %}\n"
        "{%- if content %}{{ '<|START_RESPONSE|>' + content + '<|END_RESPONSE|>' }}{% endif %}\n"
        "{%- if calls %}{{ '<|START_ACTION|>[\\n' }}{% endif %}\n"
        + _CALLS
        + '{{- \'    {"tool_call_id": "\' ~ loop.index0 ~ \'", "tool_name": "\' + name + \'", "parameters": \' }}\n'
        "{{- arguments | tojson }}{{ '}' + ('' if loop.last else ',') + '\\n' }}{% endfor %}\n"
        "{%- if calls %}{{ ']<|END_ACTION|>' }}{% endif %}\n",
        (
            *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"),
            *("<|END_RESPONSE|>", "<|START_ACTION|>", "<|END_ACTION|>"),
        ),
        begin="<|CHATBOT_TOKEN|>",
        end="<|END_OF_TURN_TOKEN|>",
    ),
    "command-r": Family(
        "cohere",
        "{{- content }}{% if calls %}{{ 'Action: ```json\\n[\\n' }}{% endif %}\n"
        + _CALLS
        + '{{- \'    {\\n        "tool_name": "\' + name + \'",\\n        "parameters": \' }}\n'
        "{{- arguments | tojson }}{{ '\\n    }' + ('' if loop.last else ',\\n') }}{% endfor %}\n"
        "{%- if calls %}{{ '\\n]```' }}{% endif %}\n",
        (),
        begin="<|CHATBOT_TOKEN|>",
        end="<|END_OF_TURN_TOKEN|>",
    ),
    "seed": Family(
        "seed",
        "{%- if reasoning %}{{ '<seed:think>' + reasoning + '</seed:think>' }}{% endif %}\n"
        "{{- content }}\n" + _CALLS + "{{- '\\n<seed:tool_call>\\n<function=' + name + '>\\n' }}\n"
        "{%- for key, value in arguments.items() %}\n"
        "{{- '<parameter=' + key + '>' + " + _AS_TEXT + " + '</parameter>\\n' }}\n"
        "{%- endfor %}{{ '</function>\\n</seed:tool_call>' }}{% endfor %}\n",
        (*("<seed:think>", "</seed:think>"), *("<seed:tool_call>", "</seed:tool_call>")),
        end="<seed:eos>",
    ),
    "gemma4": Family(
        "gemma4",
        "{%- if reasoning %}{{ '<|channel>thought\\n' + reasoning + '\\n<channel|>' }}{% endif %}{{ content }}\n"
        + _GEMMA_VALUE
        + _CALLS
        + "{{- '<|tool_call>call:' + name + '{' }}{% for key, item in arguments | dictsort %}\n"
        "{{- key + ':' }}{{ gemma(item) }}{{ '' if loop.last else ',' }}\n"
        "{%- endfor %}{{ '}<tool_call|>' }}{% endfor %}\n",
        ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
        end="<turn|>",
    ),
    "lfm2": Family(
        "lfm2",
        _THINK
        + "{{- content }}{% if calls %}{{ '<|tool_call_start|>[' }}{% endif %}\n"
        + _PYTHON_VALUE
        + _CALLS
        + "{{- name + '(' }}{% for key, item in arguments.items() %}\n"
        "{{- key + '=' }}{{ python(item) }}{{ '' if loop.last else ', ' }}\n"
        "{%- endfor %}{{ ')' + ('' if loop.last else ', ') }}{% endfor %}\n"
        "{%- if calls %}{{ ']<|tool_call_end|>' }}{% endif %}\n",
        ("<|tool_call_start|>", "<|tool_call_end|>"),
        end="<|im_end|>",
    ),
    "phi4": Family(
        "phi4",
        _THINK
        + "{{- content }}{% if calls %}{{ '<|tool_call|>[' }}{% endif %}\n"
        + _CALLS
        + '{{- \'{"name": "\' + name + \'", "arguments": \' }}{{ arguments | tojson }}\n'
        "{{- '}' + ('' if loop.last else ', ') }}{% endfor %}{% if calls %}{{ ']<|/tool_call|>' }}{% endif %}\n",
        ("<|tool_call|>", "<|/tool_call|>"),
        end="<|end|>",
    ),
}
