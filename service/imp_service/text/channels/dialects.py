"""The dialects that imp supports, one row each."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.text.channels.dialect import CallForm, CallIdShape, Dialect, Marker, Parameters, Reasoning
from imp_service.text.channels.notation import GEMMA, PYTHON

_THINK = Reasoning(Marker("<think>", after=1), Marker("</think>", before=1, after=2))
_TOOL_CALL = Marker("<tool_call>", before=1)

# Everything is content.
PLAIN = Dialect("plain")

# For models whose template writes no call: imp tells them this form. A model that knows another one often writes the
# object alone.
GENERIC = Dialect(
    "generic",
    forms=(
        CallForm(
            begin=_TOOL_CALL,
            head=' { "name" : "$name" , "arguments" : ',
            tails=(" }",),
            end=" </tool_call>",
            after_end=1,
        ),
        CallForm(begin=None, head=' { "name" : "$name" , "arguments" : ', tails=(" }",)),
        CallForm(begin=None, head=' { "name" : "$name" , "parameters" : ', tails=(" }",)),
    ),
)

_ROWS = (
    Dialect(
        # Qwen2.5, Qwen3, Hermes, Granite 4, SmolLM3.
        "hermes",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=_TOOL_CALL,
                head=' { "name" : "$name" , "arguments" : ',
                tails=(" }",),
                end=" </tool_call>",
                after_end=1,
            ),
        ),
    ),
    Dialect(
        # Qwen3-Coder, Qwen3.5, Qwen3.6, Nemotron 3.
        "qwen-xml",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=_TOOL_CALL,
                head=" <function=$name>",
                end=" </tool_call>",
                after_end=1,
                parameters=Parameters(
                    begin=" <parameter=$key>", end=Marker("</parameter>", before=1), close=" </function>"
                ),
            ),
        ),
    ),
    Dialect(
        # Llama 3.1, 3.2, 3.3.
        "llama3",
        forms=tuple(
            CallForm(begin, head, tails=(" }",), between=" ;")
            for begin in (None, Marker("<|python_tag|>"))
            for head in (
                ' { "name" : "$name" , "parameters" : ',
                ' { "type" : "function" , "name" : "$name" , "parameters" : ',
            )
        ),
    ),
    Dialect(
        # Mistral, Ministral, Devstral, Magistral: a list of JSON objects, or in newer models a marker for each part.
        "mistral",
        reasoning=Reasoning(Marker("[THINK]"), Marker("[/THINK]")),
        forms=(
            CallForm(
                begin=Marker("[TOOL_CALLS]"),
                opening=" [",
                head=' { "name" : "$name" , "arguments" : ',
                tails=(" }", ' , "id" : "$id" }'),
                between=" ,",
                end=" ]",
            ),
            CallForm(begin=Marker("[TOOL_CALLS]"), head="$name[ARGS] "),
            CallForm(begin=Marker("[TOOL_CALLS]"), head="$name[CALL_ID]$id[ARGS] "),
        ),
        ids=CallIdShape(prefix="", length=9),
    ),
    Dialect(
        # gpt-oss. A message has a header with its channel, and the recipient of a call.
        "harmony",
        reasoning=Reasoning(Marker("<|channel|>analysis<|message|>"), Marker("<|end|>"), recurs=True),
        forms=tuple(
            CallForm(begin, head + kind + "<|message|> ", end=" <|call|>")
            for begin, head in (
                (Marker("<|channel|>commentary to=functions."), "$name "),
                (Marker("<|channel|>analysis to=functions."), "$name "),
                # The header's beginning, with the recipient, may be a part of the prompt.
                (None, " to=functions.$name<|channel|>commentary "),
                (None, " to=functions.$name<|channel|>analysis "),
            )
            for kind in ("<|constrain|>json", "json", "")
        ),
        wrappers=tuple(
            map(
                Marker,
                (
                    *("<|start|>assistant", "<|end|>", "<|return|>", "<|channel|>commentary<|message|>"),
                    *("<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"),
                ),
            )
        ),
    ),
    Dialect(
        "gemma4",
        reasoning=Reasoning(Marker("<|channel>thought", after=1), Marker("<channel|>", before=1), recurs=True),
        forms=(CallForm(begin=Marker("<|tool_call>"), head=" call:$name{", notation=GEMMA, end=" <tool_call|>"),),
    ),
    Dialect(
        # DeepSeek V3, R1 and their distills with JSON in a code block, V3.1 without.
        "deepseek",
        reasoning=_THINK,
        forms=tuple(
            CallForm(
                begin=Marker("<｜tool▁calls▁begin｜>", before=2),
                head=" <｜tool▁call▁begin｜>" + head,
                tails=(tail + "<｜tool▁call▁end｜>",),
                between="",
                end=" <｜tool▁calls▁end｜>",
            )
            for head, tail in (("function<｜tool▁sep｜>$name ```json ", " ```"), ("$name<｜tool▁sep｜> ", " "))
        ),
    ),
    Dialect(
        # GLM 4.5 and later.
        "glm",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=_TOOL_CALL,
                head=" $name ",
                parameters=Parameters(
                    begin=" <arg_key>$key</arg_key> <arg_value>",
                    end=Marker("</arg_value>"),
                    close=" </tool_call>",
                    after_begin=0,
                ),
            ),
        ),
    ),
    Dialect(
        # Kimi K2. The id of a call is its function's name and its number in the conversation.
        "kimi",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=Marker("<|tool_calls_section_begin|>"),
                head=" <|tool_call_begin|> functions.$name:$id <|tool_call_argument_begin|> ",
                tails=(" <|tool_call_end|>",),
                between="",
                end=" <|tool_calls_section_end|>",
            ),
        ),
        ids=CallIdShape(prefix="functions.$name:", written="[0-9]{1,3}", example="functions.find_station:0"),
    ),
    Dialect(
        # MiniMax M2.
        "minimax",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=Marker("<minimax:tool_call>", before=1),
                head=' <invoke name="$name">',
                between="",
                end=" </minimax:tool_call>",
                parameters=Parameters(
                    begin=' <parameter name="$key">', end=Marker("</parameter>"), close=" </invoke>", after_begin=0
                ),
            ),
        ),
    ),
    Dialect(
        # LFM2 and LFM2.5.
        "lfm2",
        reasoning=_THINK,
        forms=(
            CallForm(
                begin=Marker("<|tool_call_start|>"),
                opening=" [",
                head=" $name(",
                between=" ,",
                end=" ] <|tool_call_end|>",
                notation=PYTHON,
            ),
        ),
    ),
    Dialect(
        # Command R7B, Command A and later; Command R before them.
        "cohere",
        reasoning=Reasoning(Marker("<|START_THINKING|>"), Marker("<|END_THINKING|>")),
        forms=(
            CallForm(
                begin=Marker("<|START_ACTION|>"),
                opening=" [",
                head=' { "tool_call_id" : "$index" , "tool_name" : "$name" , "parameters" : ',
                tails=(" }",),
                between=" ,",
                end=" ] <|END_ACTION|>",
            ),
            CallForm(
                begin=Marker("Action:"),
                opening=" ```json [",
                head=' { "tool_name" : "$name" , "parameters" : ',
                tails=(" }",),
                between=" ,",
                end=" ] ```",
            ),
        ),
        wrappers=tuple(
            map(Marker, ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")),
        ),
    ),
    Dialect(
        # Seed-OSS.
        "seed",
        reasoning=Reasoning(Marker("<seed:think>", after=1), Marker("</seed:think>", before=1, after=1)),
        forms=(
            CallForm(
                begin=Marker("<seed:tool_call>", before=1),
                head=" <function=$name>",
                end=" </seed:tool_call>",
                after_end=1,
                parameters=Parameters(
                    begin=" <parameter=$key>", end=Marker("</parameter>"), close=" </function>", after_begin=0
                ),
            ),
        ),
    ),
    Dialect(
        # Phi-4-mini; Phi-4-reasoning.
        "phi4",
        reasoning=_THINK,
        forms=tuple(
            CallForm(Marker(begin), head, opening=" [", tails=(tail,), between=" ,", end=end)
            for begin, end in (("<|tool_call|>", " ] <|/tool_call|>"), ("functools", " ]"))
            for head, tail in (
                (' { "name" : "$name" , "arguments" : ', " }"),
                (' { "name" : "$name" , "parameters" : ', " }"),
                (' { "type" : "function" , "function" : { "name" : "$name" , "arguments" : ', " } }"),
            )
        ),
    ),
    PLAIN,
)

DIALECTS: Mapping[str, Dialect] = {row.name: row for row in _ROWS}
