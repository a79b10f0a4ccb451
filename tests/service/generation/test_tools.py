"""Parsed output and forced calls of a whole model: the built-in one with templates of other families."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import imp_service
from imp_service import ChatMessage, ChatPrompt, GenerationRequest, GenerationResult, LanguageModel, ToolCallDelta
from imp_service.config import read_settings
from imp_service.generation.text_side import TextSide
from imp_service.generation.tools import resolve_tools
from imp_service.text.channels.call_constraint import CallConstraint
from support.run.release_run import repetitions
from support.text.chat_templates import CHATML
from support.text.family_templates import FAMILIES
from support.text.tool_templates import HERMES, LLAMA3, MISTRAL, MISTRAL_MARKED, QWEN_XML, ROWS

TEMPLATES = {
    **{"hermes": HERMES, "qwen-xml": QWEN_XML, "llama3": LLAMA3, "mistral": MISTRAL, "marked": MISTRAL_MARKED},
    **{row: family.template for row, family in FAMILIES.items()},
}
SMALL = ("limits.max_context=512", "device.threads=1")
TALK = [{"role": "user", "content": "Where is the cat?"}]
COLOUR = {"type": "string", "enum": ["red", "dark blue"]}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}, "additionalProperties": False},
    *(
        {"type": "object", "properties": {"v": value}, "required": ["v"], "additionalProperties": False}
        for value in (
            {"type": "string", "maxLength": 6},
            {"type": "string", "minLength": 2, "maxLength": 4},
            COLOUR,
            {"const": "on"},
            {"type": "integer", "minimum": 3, "maximum": 12},
            {"type": "integer", "minimum": -5, "exclusiveMaximum": 1},
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": [1, 2.5, None, True]},
            {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
            {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
            {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}, "maxItems": 3},
            {"type": "array", "items": COLOUR, "minItems": 1, "maxItems": 2},
            {"type": "object", "properties": {"x": COLOUR}, "required": ["x"], "additionalProperties": False},
        )
    ),
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": COLOUR, "c": {"type": "boolean"}},
        "required": ["b", "a"],
        "$defs": {"n": {"type": "integer", "minimum": 1, "maximum": 7}},
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}, "additionalProperties": False},
    {"properties": {"k": {"type": "integer", "maximum": 5, "minimum": 5}}, "additionalProperties": False},
    {"properties": {"t": {"type": "string", "maxLength": 3}, "u": {"type": "null"}}, "required": ["t"],
     "additionalProperties": False, "description": "two"},
]  # fmt: skip


def tools_of(*schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    functions = [{"name": f"do_{n}", "parameters": schema} for n, schema in enumerate(schemas)]
    return [{"type": "function", "function": function} for function in functions]


def strict(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "do_0", "parameters": schema, "strict": True}}]


STRICT = strict({"not": {}})
OVERLAPPING = strict({"properties": {"v": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}})
# Seeds of each schema under each dialect. Each takes a tenth of a second.
N_SEEDS = repetitions(200, 4)


@contextmanager
def model_with(template: str, folder: Path, *settings: str) -> Iterator[LanguageModel]:
    path = folder / "chat.jinja"
    path.write_text(template)
    with imp_service.load(None, *SMALL, f"model.overrides.chat_template={path}", *settings) as model:
        yield model


@pytest.fixture(scope="module", params=TEMPLATES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    with model_with(TEMPLATES[request.param], tmp_path_factory.mktemp("templates")) as made:
        yield made


def check(result: GenerationResult, schemas: list[dict[str, Any]]) -> None:
    """Checks that the calls match their schemas. If the output was cut, the last call may be incomplete."""
    is_cut = result.finish_reason == "max_tokens"
    assert result.finish_reason == "stop" or is_cut
    assert is_cut or (result.tool_calls and not result.text.strip())
    for call in result.tool_calls[: -1 if is_cut else None]:
        jsonschema.validate(json.loads(call.arguments), schemas[int(call.name.removeprefix("do_"))])


@pytest.mark.long
@pytest.mark.parametrize("n", range(20))
def test_tol_1_a_forced_call_fits_its_schema(model: LanguageModel, n: int) -> None:
    assert len(SCHEMAS) == 20
    chosen: dict[str, Any] = {"tools": tools_of(SCHEMAS[n]), "tool_choice": "function:do_0", "parse": True}
    for seed in range(N_SEEDS):
        result = model.chat(TALK, **chosen, seed=seed, temperature=seed % 3, max_tokens=250).result()
        check(result, [SCHEMAS[n]])
        assert len(result.tool_calls) <= 1


@pytest.mark.long
def test_tol_1_a_required_call_is_of_any_function(model: LanguageModel) -> None:
    schemas = SCHEMAS[4:6]
    for seed in range(4):
        result = model.chat(
            TALK, tools=tools_of(*schemas), tool_choice="required", parse=True, seed=seed, temperature=2, max_tokens=150
        ).result()
        check(result, schemas)


@pytest.mark.long
def test_tol_1_only_max_tokens_cuts_a_forced_call(model: LanguageModel) -> None:
    chosen: dict[str, Any] = {"tools": tools_of(SCHEMAS[5]), "tool_choice": "function:do_0", "parse": True, "seed": 5}
    whole = model.chat(TALK, **chosen, max_tokens=200).result()
    assert whole.finish_reason == "stop"
    first = whole.tool_calls[0]
    for n in range(1, len(whole.token_ids), 3):
        part = model.chat(TALK, **chosen, max_tokens=n).result()
        assert part.finish_reason == "max_tokens" and part.token_ids == whole.token_ids[:n]
        for call in part.tool_calls[:1]:
            assert call.name == first.name and first.arguments.startswith(call.arguments)
            assert call.id == first.id or not call.arguments


@pytest.mark.few(2)
def test_tol_2_chn_9_streamed_is_whole(model: LanguageModel) -> None:
    chosen: dict[str, Any] = {"tools": tools_of(SCHEMAS[17]), "tool_choice": "function:do_0", "parse": True, "seed": 11}
    replies = list(model.chat(TALK, **chosen, max_tokens=200))
    again = model.chat(TALK, **chosen, max_tokens=200, stop=["not there"]).result()
    whole = model.chat(TALK, **chosen, max_tokens=200).result()
    deltas = [call for reply in replies[1:] for call in reply.tool_calls]  # type: ignore[union-attr]
    assert "".join(call.arguments for call in deltas if call.index == 0) == whole.tool_calls[0].arguments
    assert [(call.id, call.name) for call in deltas if call.id] == [(call.id, call.name) for call in whole.tool_calls]
    assert again.tool_calls == whole.tool_calls


@pytest.mark.long
def test_chn_7_calls_for_different_prompts_of_one_length_have_different_ids(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"tools": tools_of(SCHEMAS[0]), "tool_choice": "required", "parse": True, "seed": 3}
    with model_with(HERMES, tmp_path) as model:
        prompts = [[{"role": "user", "content": f"Is it {word}?"}] for word in ("a", "b", "a")]
        results = [model.chat(prompt, **chosen, max_tokens=60).result() for prompt in prompts]
        assert len({result.usage.prompt_tokens for result in results}) == 1
        ids = [result.tool_calls[0].id for result in results]
        assert ids[0] == ids[2] != ids[1]


def accepts(side: TextSide, constraint: CallConstraint, text: str) -> tuple[bool, bool]:
    """Returns whether the constraint allows the text, and whether it may end there."""
    state = side.compile(constraint).start()
    ids = side.tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
    allowed = all(state.accept(token) for token in ids)
    return allowed, allowed and state.may_end


TAGS = "<tool_call>\n<function=do_0>\n</function>\n</tool_call>"
LIST = '[TOOL_CALLS][{"name": "do_0", "arguments": {}}]'


@pytest.mark.long
@pytest.mark.parametrize(
    ("row", "prompt_end", "thought", "call"),
    [
        ("thinking", "", "Hm <x>\n</think>\n\n", TAGS),
        ("qwen-xml", "", "", TAGS),
        ("mistral", "{% if add_generation_prompt %}[THINK]{% endif %}", "Hm [/THINK]", LIST),
    ],
)
def test_tol_3_reasoning_that_the_prompt_opens_ends_before_a_forced_call(
    row: str, prompt_end: str, thought: str, call: str
) -> None:
    _, metadata = ROWS[row]
    metadata = {**metadata, "tokenizer.chat_template": f"{metadata['tokenizer.chat_template']}{prompt_end}"}
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side = TextSide(metadata, read_settings(None, []).settings, len(tokens))
    prompt = ChatPrompt((ChatMessage("user", "x"),), json.dumps(tools_of({})))
    constraint = resolve_tools(GenerationRequest(prompt, tool_choice="function:do_0"), side).constraint
    assert isinstance(constraint, CallConstraint)
    assert accepts(side, constraint, thought + call) == (True, True)
    assert not accepts(side, constraint, thought)[1]
    assert not accepts(side, constraint, "x" + call)[1]
    assert accepts(side, constraint, call)[1] == (not thought)


@pytest.mark.few(9)
def test_tol_3_none_hides_the_tools(model: LanguageModel) -> None:
    def prompt_of(**options: Any) -> list[int]:
        started, *_ = model.chat(TALK, prompt_token_ids=True, max_tokens=1, **options)
        return started.prompt.token_ids  # type: ignore[union-attr]

    tools = tools_of(SCHEMAS[1])
    assert prompt_of(tools=tools, tool_choice="none") == prompt_of()
    assert prompt_of(tools=tools, tool_choice="auto") == prompt_of(tools=tools) != prompt_of()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool_choice": "any"}, "tool_choice: 'any', expected one of none, auto, required, or function:"),
        ({"tool_choice": "required"}, "tool_choice: 'required', expected tools in the chat"),
        ({"tool_choice": "required", "tools": []}, "expected tools in the chat"),
        ({"tool_choice": "function:other", "tools": tools_of({})}, "expected a function of the chat's tools"),
        ({"tools": tools_of({}), "parallel_tool_calls": False}, "expected output.parse or a tool_choice that forces"),
        ({"tool_choice": "required", "tools": tools_of({"type": "string"})}, "expected a schema of type object"),
        ({"tool_choice": "required", "tools": STRICT}, "chat.tools_json[0].function.parameters: at #: keyword 'not'"),
        (
            {"tool_choice": "required", "tools": OVERLAPPING},
            "chat.tools_json[0].function.parameters: at #/properties/v: oneOf: schemas that may",
        ),
    ],
)
def test_tol_3_a_choice_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with model_with(HERMES, tmp_path) as model, pytest.raises(imp_service.InvalidArgument) as caught:
        model.chat(TALK, **options)
    assert caught.value.reason == "FIELD_INVALID" and words in str(caught.value)


def test_tol_3_values_as_text_refuse_what_text_cannot_be_held_to(tmp_path: Path) -> None:
    with model_with(QWEN_XML, tmp_path) as model:
        for value, word in (({"type": "string", "pattern": "a"}, "pattern"), ({"type": ["string", "array"]}, "array")):
            tools = strict({"type": "object", "properties": {"v": value}})
            with pytest.raises(imp_service.InvalidArgument, match=word):
                model.chat(TALK, tools=tools, tool_choice="required")


def test_tol_3_a_dialect_that_is_plain_by_the_settings_refuses_tools(tmp_path: Path) -> None:
    tools = tools_of(SCHEMAS[1])
    with model_with(CHATML, tmp_path, "model.overrides.dialect=plain") as model:
        for options in ({"parse": True}, {"tool_choice": "auto"}):
            with pytest.raises(imp_service.InvalidArgument) as caught:
                model.chat(TALK, tools=tools, **options)  # type: ignore[arg-type]
            assert caught.value.field == "chat.tools_json"
        for options in ({}, {"parse": True, "tool_choice": "none"}):
            assert model.chat(TALK, tools=tools, max_tokens=2, **options).result().token_ids  # type: ignore[arg-type]


@pytest.mark.long
def test_chn_9_without_parse_nothing_changes(tmp_path: Path) -> None:
    with model_with(HERMES, tmp_path) as model:
        chosen: dict[str, Any] = {"tools": tools_of(SCHEMAS[5]), "tool_choice": "required", "seed": 3, "max_tokens": 90}
        plain, parsed = model.chat(TALK, **chosen).result(), model.chat(TALK, **chosen, parse=True).result()
        assert plain.token_ids == parsed.token_ids
        assert plain.text == model.detokenize(plain.token_ids) and plain.text.startswith("<tool_call>")
        assert (plain.reasoning, list(plain.tool_calls)) == ("", [])
        assert (parsed.text.strip(), parsed.tool_calls[0].name) == ("", "do_0")


@pytest.mark.long
def test_chn_9_each_sequence_has_its_own_calls(tmp_path: Path) -> None:
    with model_with(HERMES, tmp_path) as model:
        results = model.chat(
            TALK, tools=tools_of(SCHEMAS[5]), tool_choice="required", parse=True, num_sequences=3, seed=4, max_tokens=90
        ).results()
        calls: list[ToolCallDelta] = [result.tool_calls[0] for result in results]
        assert [call.index for call in calls] == [0, 0, 0]
        assert len({call.id for call in calls}) == 3
        for result in results:
            check(result, [SCHEMAS[5]])
