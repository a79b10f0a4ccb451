"""Output as channels: every byte is in one of them, only real calls are calls, and a template shows its dialect."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.config import read_settings
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatMessage, ChatPrompt, StopRules, StopStrings, TemplateInvalid, Tokenizer
from imp_service.text.channels.calls import CallIds, CallWriter
from imp_service.text.channels.channel_stream import (
    ChannelDelta,
    ChannelStream,
    ParsePlan,
    ReasoningCount,
    joined,
    visible,
)
from imp_service.text.channels.dialects import DIALECTS
from imp_service.text.channels.find_dialect import opens_reasoning
from imp_service.text.channels.pieces import Piece, PieceKind, merged
from imp_service.text.channels.splitter import ChannelSplitter
from imp_service.text.channels.tools import Tool
from support.run.release_run import repetitions
from support.text.chat_templates import CHATML
from support.text.dialect_texts import ONLY_CALLS, TOOLS, TYPES, WITHOUT_REASONING, WRITERS, Said, message_of
from support.text.family_templates import FAMILIES
from support.text.tiny_vocabularies import byte_level
from support.text.tool_templates import ROWS

BYTES = Tokenizer.from_metadata(byte_level())
N_CONVERSATIONS = repetitions(200, 50)
NAMES = frozenset(tool.name for tool in TOOLS)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<[{\n\r\t "), min_size=1, max_size=12)
VALUES = {
    "text": st.text(st.characters(codec="utf-8", exclude_characters="<\r"), max_size=12),
    "count": st.integers(-(10**9), 10**9),
    "share": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "list": st.lists(st.one_of(st.integers(0, 9), WORDS, st.none()), max_size=3),
    # Gemma's keys have no quotes, so a colon would end them, and a brace at their beginning the object.
    "more": st.dictionaries(WORDS.map(lambda word: re.sub("[:}]", "_", word)), st.booleans(), max_size=2),
}
CALLS = st.tuples(st.sampled_from(sorted(NAMES)), st.fixed_dictionaries({}, optional=VALUES))
SAID = st.builds(
    Said,
    content=st.one_of(st.just(""), WORDS),
    reasoning=st.one_of(st.just(""), WORDS),
    calls=st.lists(CALLS, max_size=3),
)
# Texts with every marker of every dialect, whole and broken.
PARTS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=find>", "<parameter=text>", "</parameter>"),
    *("</function>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "<|python_tag|>", '{"name": "find"'),
    *("<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|>", "<|start|>assistant", "<|call|>"),
    *("<|channel|>commentary to=functions.", "find <|constrain|>json<|message|>", " to=functions.find<|channel|>"),
    *(
        "commentary json<|message|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json",
    ),
    *(
        "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "find\n<arg_key>text</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>"),
    *("<|tool_call_end|>", "<|tool_calls_section_end|>", "<minimax:tool_call>", '<invoke name="find">', "</invoke>"),
    *('<parameter name="text">', "</minimax:tool_call>", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>"),
    *('{"tool_call_id": "0", "tool_name": "find"', "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    *("Action:", "```json", '{"tool_name": "find"', "<seed:think>", "</seed:think>", "<seed:tool_call>"),
    *("</seed:tool_call>", "<|tool_call|>", "<|/tool_call|>", "functools"),
    *(', "arguments": ', ', "parameters": ', '{"text": "x"}', "}", "]", "[", "\n", " ", "find", "ü", "<", ";", ","),
)
TANGLES = st.lists(st.sampled_from(PARTS), max_size=14).map("".join)


def split(dialect: str, pieces: Sequence[bytes], *, in_reasoning: bool = False) -> list[Piece]:
    """Returns the channel pieces of an output given in these parts."""
    splitter = ChannelSplitter(DIALECTS[dialect], in_reasoning=in_reasoning, names=NAMES)
    found: list[Piece] = []
    for piece in pieces:
        found += splitter.feed(piece)
        assert splitter.n_held <= DIALECTS[dialect].longest_marker
    return merged([*found, *splitter.finish()])


def cut(data: bytes, seed: int) -> list[bytes]:
    """Cuts the bytes into random pieces."""
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.randint(0, 8))))
    return [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)])]


def read(dialect: str, text: str, *, tools: Sequence[Tool] | None = TOOLS, every: int | None = 1) -> ChannelDelta:
    """Returns the channels of a text given byte by byte, or at once."""
    plan = ParsePlan(DIALECTS[dialect], False, None if tools is None else tuple(tools), (7,))
    stream = ChannelStream(visible(BYTES.table, plan.dialect, BYTES.eos_ids), plan)
    ids = BYTES.encode(text, add_special_tokens=False)
    step = every or len(ids) or 1
    return joined([*(stream.feed_all(ids[at : at + step]) for at in range(0, len(ids), step)), stream.finish()])


@pytest.mark.few(2)
@pytest.mark.parametrize("dialect", DIALECTS)
@given(text=TANGLES, in_reasoning=st.booleans(), seed=st.integers(0, 2**32))
def test_chn_1_chn_2_every_byte_is_in_one_piece_whatever_the_splits(
    dialect: str, text: str, in_reasoning: bool, seed: int
) -> None:
    data = text.encode()
    whole = split(dialect, [data], in_reasoning=in_reasoning)
    assert b"".join(piece.data for piece in whole) == data
    assert split(dialect, [bytes([byte]) for byte in data], in_reasoning=in_reasoning) == whole
    assert split(dialect, cut(data, seed), in_reasoning=in_reasoning) == whole


def test_chn_1_plain_output_is_all_content() -> None:
    text = "<think>a</think><tool_call>"
    assert split("plain", [text.encode()], in_reasoning=True) == [Piece(PieceKind.CONTENT, text.encode())]


def expected_of(row: str, said: Said) -> Said:
    """Returns the parts that this row's template writes."""
    content = "" if row in ONLY_CALLS and said.calls else said.content
    return Said(content, "" if row in WITHOUT_REASONING else said.reasoning, said.calls)


@pytest.mark.few(2)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
@given(said=SAID)
def test_tol_2_what_a_dialect_writes_is_read_back(writer: Callable[[Said], str], said: Said) -> None:
    text, dialect = writer(said), WRITERS[writer]
    expected = expected_of(writer.__name__, said)
    for every in (1, None):
        found = read(dialect, text, every=every)
        assert (found.text, found.reasoning) == (expected.content, expected.reasoning)
        assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == list(expected.calls)
        assert [call.index for call in found.tool_calls] == list(range(len(said.calls)))


def conversations(row: str, n: int) -> Iterator[Said]:
    """Yields random answers, the same in each run. Each has calls or content."""
    rng = random.Random(row)
    words = [
        "Zürich",
        "<b>",
        'a "quote"',
        "x = {1: [2]}",
        "line\nbreak",
        "日本",
        "back\\slash",
        "<|odd",
        "}",
        "]",
        "it's",
    ]

    def text(most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(1, most)))

    def value(kind: str) -> object:
        scalars: dict[str, object] = {
            "string": text(4),
            "integer": rng.randint(-999, 10**9),
            "number": rng.choice([0.5, -1.25, 3e20]),
            "boolean": rng.random() < 0.5,
        }
        if kind == "array":
            return [value(rng.choice([*scalars])) for _ in range(rng.randint(0, 3))]
        return scalars[kind] if kind in scalars else {"in": value(rng.choice([*scalars])), "deep": {"list": [None, {}]}}

    for _ in range(n):
        calls = [
            (rng.choice(sorted(NAMES)), {key: value(TYPES[key]) for key in rng.sample([*TYPES], rng.randint(0, 4))})
            for _ in range(rng.randint(0, 1 if row == "llama3" else 3))
        ]
        content = text(5) if not calls or rng.random() < 0.5 else ""
        # If the prompt opens the reasoning, the answer always has some.
        reasoning = text(6) if row == "thinking" or rng.random() < 0.5 else ""
        yield expected_of(f"tool-template:{row}" if row.startswith("mistral") else row, Said(content, reasoning, calls))


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_tol_2_what_a_template_renders_is_read_back(row: str) -> None:
    """The output comes token by token, byte by byte and at once."""
    name, metadata = ROWS[row]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side = TextSide(metadata, read_settings(None, []).settings, len(tokens))
    question = ChatMessage("user", "Where?")
    before = side.render(ChatPrompt((question,))).text
    for said in conversations(row, N_CONVERSATIONS):
        message = message_of(said, FAMILIES.get(row))
        answer = ChatMessage(
            "assistant",
            said.content,
            tool_calls_json=json.dumps(message.get("tool_calls", [])),
            reasoning_content=said.reasoning,
        )
        whole = side.render(ChatPrompt((question, answer), add_generation_prompt=False)).text
        assert whole.startswith(before)
        ids = side.tokenizer.encode(whole.removeprefix(before), add_special_tokens=False, parse_special_tokens=True)
        # The model's last token ends the turn. What the template writes after it is not output.
        while ids[-1] not in side.tokenizer.eos_ids:
            ids.pop()
        plan = ParsePlan(side.dialect, opens_reasoning(side.dialect, before), TOOLS, (7,))
        for step in (1, len(ids)):
            stream = ChannelStream(side.channel_table, plan)
            found = joined(
                [*(stream.feed_all(ids[at : at + step]) for at in range(0, len(ids), step)), stream.finish()]
            )
            calls = [(each.name, json.loads(each.arguments)) for each in found.tool_calls]
            assert Said(found.text, found.reasoning, calls) == said
        data = b"".join(side.channel_table.token_bytes[each] for each in ids[:-1])
        assert split(name, [bytes([each]) for each in data]) == split(name, [data])


FORTY = [
    (WRITERS[writer], writer(Said("Moment ü", "why ✓", [("find", {"text": f'a "{n}"\n', "count": n})] * calls)))
    for writer in WRITERS
    for calls in (0, 1, 2, 3)
    for n in (1, 22)
]


@pytest.mark.long
@pytest.mark.parametrize(("dialect", "text"), FORTY)
def test_tol_2_streamed_is_whole_at_every_split(dialect: str, text: str) -> None:
    data = text.encode()
    whole = split(dialect, [data])
    for at in range(len(data)):
        assert split(dialect, [data[:at], data[at:]]) == whole


LOOKALIKES = [
    ("hermes", "Write <tool_call> to begin a call."),
    ("hermes", "<tool_call>\nfind\n</tool_call>"),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    ("hermes", '{"name": "find", "arguments": {}}'),
    ("hermes", "The <think> tag."),
    ("qwen-xml", "<tool_call>\n<function=>\n</tool_call>"),
    ("qwen-xml", "<function=find>\n</function>"),
    ("llama3", '{"name": "Bob", "parameters": {"age": 7}}'),
    ("llama3", 'So: {"name": "find", "parameters": {}}'),
    ("llama3", '{"name": "find", "parameters": 7}'),
    ("llama3", "<|python_tag|>print(1)"),
    ("mistral", "[TOOL_CALLS] is a marker"),
    ("mistral", '[{"name": "find", "arguments": {}}]'),
    ("mistral", "see [TOOL_CALLS"),
]


@pytest.mark.parametrize(("dialect", "text"), LOOKALIKES)
def test_chn_3_what_only_looks_like_a_call_is_content(dialect: str, text: str) -> None:
    found = read(dialect, text)
    assert (found.text, found.reasoning, found.tool_calls) == (text, "", [])


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_chn_3_nothing_is_a_call_if_the_request_offers_no_function(writer: Callable[[Said], str]) -> None:
    text = writer(Said("Hm", "", [("find", {"text": "x"})]))
    framed = text
    for wrapper in DIALECTS[WRITERS[writer]].wrappers:
        framed = framed.replace(wrapper.text, "")
    assert read(WRITERS[writer], text, tools=()).text == framed


def test_chn_3_text_behind_a_call_is_content() -> None:
    call = '<tool_call>{"name": "find", "arguments": {}'
    for rest, content in (("}</tool_call>\nDone", "Done"), (', "more": 1}', ', "more": 1}'), ("</tool_call>x", "x")):
        found = read("hermes", call + rest)
        assert (len(found.tool_calls), found.text) == (1, content)


@pytest.mark.few(3)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_chn_4_a_call_that_is_cut_is_returned_as_far_as_it_came(writer: Callable[[Said], str]) -> None:
    dialect, text = WRITERS[writer], writer(Said("", "", [("find", {"text": "abc", "count": 12})]))
    whole = read(dialect, text).tool_calls[0]
    lengths = []
    for n in range(len(text) + 1):
        calls = read(dialect, text[:n]).tool_calls
        if not calls:
            continue
        assert (calls[0].name, calls[0].id) == (whole.name, whole.id)
        assert whole.arguments.startswith(calls[0].arguments)
        lengths.append(len(calls[0].arguments))
    assert lengths == sorted(lengths)
    assert lengths[0] == 0 and lengths[-1] == len(whole.arguments)


def as_parameter(schema: object, text: str) -> object:
    tool = Tool("find", {"type": "object", "properties": {"v": schema}, "$defs": {"n": {"type": "integer"}}}, "")
    call = f"<tool_call>\n<function=find>\n<parameter=v>\n{text}\n</parameter>\n</function>\n</tool_call>"
    found = read("qwen-xml", call, tools=[tool])
    assert read("qwen-xml", call, tools=[tool], every=None) == found
    return json.loads(found.tool_calls[0].arguments)["v"]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, ' "a"\n\\ ü\n', ' "a"\n\\ ü\n'),
        ({"type": "integer"}, " 5", 5),
        ({"type": "number"}, "5e1", 50.0),
        ({"type": "integer"}, "five", "five"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "5", "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5 apples", "5 apples"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"$ref": "#/$defs/n"}, "7", 7),
        ({"type": "array"}, '["a", {"b": 1}]', ["a", {"b": 1}]),
        ({"type": "object"}, '{"a": "<b>"}', {"a": "<b>"}),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": ["integer", "string"]}, "x" * 100, "x" * 100),
        ({"type": "number"}, "0." + "0" * 98 + "1", 1e-99),
        ({}, "7", 7),
        ({}, "seven", "seven"),
    ],
)
def test_chn_5_a_value_written_as_text_is_json_of_its_type(schema: object, text: str, value: object) -> None:
    found = as_parameter(schema, text)
    assert found == value and type(found) is type(value)


def test_chn_5_a_parameter_that_no_schema_declares_is_text() -> None:
    call = "<tool_call><function=find><parameter=other>7</parameter></function></tool_call>"
    for tools in (TOOLS, None):
        assert json.loads(read("qwen-xml", call, tools=tools).tool_calls[0].arguments) == {"other": "7"}


def test_chn_7_ids_follow_from_the_request_alone() -> None:
    def ids(dialect: str, *origin: int) -> list[str]:
        return [CallIds(DIALECTS[dialect].ids, origin).of(index) for index in range(3)]

    assert ids("hermes", 7, 20, 0) == ids("hermes", 7, 20, 0)
    every = [*ids("hermes", 7, 20, 0), *ids("hermes", 8, 20, 0), *ids("hermes", 7, 21, 0), *ids("hermes", 7, 20, 1)]
    assert len(set(every)) == 12
    assert all(each.startswith("call_") and len(each) == 29 and each[5:].isalnum() for each in every)
    assert all(len(each) == 9 and each.isalnum() for each in ids("mistral", 7, 20, 0))


def test_chn_7_an_id_that_the_model_writes_before_its_arguments_is_kept() -> None:
    found = read("mistral", '[TOOL_CALLS]find[CALL_ID]a1b2c3d4e[ARGS]{"text": "x"}')
    assert [call.id for call in found.tool_calls] == ["a1b2c3d4e"]


def test_chn_4_a_call_in_a_broken_character_stays_valid_text() -> None:
    writer = CallWriter((), CallIds(DIALECTS["hermes"].ids, (1,)))
    for piece in (Piece(PieceKind.NAME, b"f"), Piece(PieceKind.HEAD_END)):
        writer.take(piece)
    first = writer.take(Piece(PieceKind.ARGUMENTS, b'{"a": "\xc3'))
    second = writer.take(Piece(PieceKind.ARGUMENTS, b'\xbc"}'))
    assert first is not None and second is not None
    assert first.arguments + second.arguments == '{"a": "ü"}'


@pytest.mark.parametrize(
    "writer",
    [writer for writer in WRITERS if writer.__name__ not in WITHOUT_REASONING],
    ids=lambda writer: writer.__name__,
)
def test_chn_11_tokens_that_begin_in_the_reasoning_are_counted(writer: Callable[[Said], str]) -> None:
    """Each token is a byte here."""
    plan = ParsePlan(DIALECTS[WRITERS[writer]], False, TOOLS, (7,))
    text = writer(Said("Moment ü", "why ✓", [("find", {"text": "a"})]))
    ids = BYTES.encode(text, add_special_tokens=False)
    for step in (1, 3, len(ids)):
        stream = ChannelStream(visible(BYTES.table, plan.dialect, BYTES.eos_ids), plan)
        found = joined([*(stream.feed_all(ids[at : at + step]) for at in range(0, len(ids), step)), stream.finish()])
        assert found.reasoning == "why ✓"
        assert stream.n_reasoning_tokens == len("why ✓".encode())


def test_chn_11_a_token_of_two_channels_counts_for_that_in_which_it_begins() -> None:
    count = ReasoningCount()
    for n_bytes in (2, 0, 3, 1, 4):
        count.add(n_bytes)
    for kind, data in (
        (PieceKind.MARKER, b"a"),
        (PieceKind.REASONING, b"bcd"),
        (PieceKind.CONTENT, b"e"),
        (PieceKind.REASONING, b"f"),
    ):
        count.take([Piece(kind, data)])
    assert count.n_tokens == 2
    count.take([Piece(PieceKind.CONTENT, b"ghij")])
    assert count.n_tokens == 2


STOPS = StopRules(StopStrings(("END",)))


def streamed(text: str, dialect: str = "hermes") -> tuple[ChannelDelta, int]:
    """Returns the channels with a stop string, and the number of tokens taken."""
    plan = ParsePlan(DIALECTS[dialect], False, TOOLS, (7,))
    stream = ChannelStream(BYTES.table, plan, STOPS)
    deltas: list[ChannelDelta] = []
    for n, token in enumerate(BYTES.encode(text, add_special_tokens=False), start=1):
        deltas.append(stream.feed(token))
        if deltas[-1].match is not None:
            assert stream.finish() == ChannelDelta()
            return joined(deltas), n
    return joined([*deltas, stream.finish()]), len(text)


def test_chn_8_stop_strings_match_content_alone() -> None:
    text = '<think>END</think>a <tool_call>{"name": "find", "arguments": {"text": "END"}}</tool_call> b END c'
    found, n = streamed(text)
    assert (found.match, found.text, found.reasoning) == ("END", "a  b ", "END")
    assert json.loads(found.tool_calls[0].arguments) == {"text": "END"}
    assert n == text.rindex("END") + 3


@pytest.mark.few(3)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_tol_5_the_output_ends_after_its_first_complete_call(writer: Callable[[Said], str]) -> None:
    dialect = WRITERS[writer]
    calls: list[tuple[str, dict[str, object]]] = [("find", {"text": "a"}), ("find", {"text": "b"})]
    one, two = (writer(Said(calls=calls[:n])) for n in (1, 2))
    plan = ParsePlan(DIALECTS[dialect], False, TOOLS, (7,), ends_after_call=True)
    ids = BYTES.encode(two, add_special_tokens=False)
    stream = ChannelStream(visible(BYTES.table, plan.dialect, BYTES.eos_ids), plan)
    assert stream.seeks_end
    deltas = list[ChannelDelta]()
    while not (deltas and deltas[-1].is_end):
        deltas.append(stream.feed(ids[len(deltas)]))
    assert stream.finish() == ChannelDelta()
    found, whole = joined(deltas), read(dialect, one)
    assert (found.tool_calls, found.text, found.match, found.is_end) == (whole.tool_calls, "", None, True)
    assert len(deltas) <= len(one.encode())


def test_chn_8_a_stop_string_does_not_go_on_behind_a_call() -> None:
    found, _ = streamed('aEN<tool_call>{"name": "find", "arguments": {}}</tool_call>Db')
    assert (found.match, found.text) == (None, "aENDb")


@settings(max_examples=30)
@given(text=TANGLES)
def test_chn_8_content_without_calls_stops_as_text_does(text: str) -> None:
    found, _ = streamed(text.replace("<", "").replace("[", "") + "END and more", "plain")
    assert found.match == "END" and "END" not in found.text


def test_chn_7_kimi_has_ids_of_name_and_number() -> None:
    call = "<|tool_call_begin|>functions.find:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    found = read("kimi", f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>")
    assert [call.id for call in found.tool_calls] == ["functions.find:3"]


TALK = (ChatMessage("user", "Where?"),)


def side_of(metadata: Mapping[str, object], dialect: str | None = None) -> TextSide:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    words = [] if dialect is None else [f"model.overrides.dialect={dialect}"]
    return TextSide(metadata, read_settings(None, words).settings, len(tokens))


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
