"""The dialects that imp supports, one row each."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.text.channels.dialect import CallForm, CallIdShape, Dialect, Marker, Parameters, Reasoning

_THINK = Reasoning(Marker("<think>", after=1), Marker("</think>", before=1, after=2))
_TOOL_CALL = Marker("<tool_call>", before=1)

# Everything is content.
PLAIN = Dialect("plain")

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
        # Qwen3-Coder, Qwen3.5, Nemotron 3.
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
    PLAIN,
)

DIALECTS: Mapping[str, Dialect] = {row.name: row for row in _ROWS}
