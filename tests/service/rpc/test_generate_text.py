"""The text of a generation through gRPC: stop strings and UTF-8. Its division into messages does not change it."""

from __future__ import annotations

import itertools
import random

import pytest

from imp_service.pb import types_pb2
from support.calls.generations import Result, in_one, saying, spelled, streamed, vocabulary
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, ask, serve
from support.servers.served_models import scripted

PROMPT = [5]
BOTH = pytest.mark.parametrize("run", [streamed, in_one])


def output(chunk: int | None = None, delay_ms: int | None = None, **fields: object) -> types_pb2.OutputOptions:
    options = types_pb2.OutputOptions(**fields)
    if chunk is not None:
        options.max_chunk_tokens = chunk
    if delay_ms is not None:
        options.max_chunk_delay.FromMilliseconds(delay_ms)
    return options


def stop(n: int, *strings: str, **fields: object) -> types_pb2.StopOptions:
    return types_pb2.StopOptions(max_tokens=n, strings=strings, ignore_eos=True, **fields)


# The token ids spell "END" in three, two and one token.
ENDS = {
    3: spelled("some text END and more"),
    2: [*spelled("some text "), *vocabulary().encode("E"), *vocabulary().encode("ND"), *spelled(" and more")],
    1: [*spelled("some text "), *vocabulary().encode("END"), *spelled(" and more")],
}


@pytest.mark.long
@pytest.mark.parametrize("n_tokens", ENDS)
def test_txt_4_txt_7_r11_a_stop_string_over_tokens_and_chunks_is_never_partly_sent(n_tokens: int) -> None:
    """The checker of every stream refuses a text with a stop string. The text ends before it, unless it is included."""
    table = ENDS[n_tokens]
    spell = vocabulary().decode(table)
    assert spell == "some text END and more"
    with serve(model=saying(table)) as served:
        for chunk, keeps in itertools.product((1, 2, 3, 1000), (False, True)):
            request = ask(PROMPT, stop=stop(len(table), "END", include_match=keeps), output=output(chunk))
            for result in (streamed(served, request), in_one(served, request)):
                found = result.output
                assert (found.text, found.reason) == ("some text END" if keeps else "some text ", "STOP")
                assert found.match == ("text", "END")
                decoded = vocabulary().decode(found.ids)
                assert decoded[: decoded.index("END")] == "some text "
                assert vocabulary().decode(found.ids[:-1]).find("END") < 0


def test_txt_4_a_beginning_that_never_becomes_the_stop_string_is_all_delivered() -> None:
    table = spelled("EN" * 200 + "END")
    with serve(model=saying(table, max_context=600, n_blocks=80)) as served:
        result = streamed(served, ask(PROMPT, stop=stop(len(table), "END")))
        assert result.output.text == "EN" * 200 and result.output.match == ("text", "END")


@pytest.mark.few(3)
@BOTH
@pytest.mark.parametrize(("said", "n", "text"), [("xEN", 3, "xEN"), ("ENX", 3, "ENX"), ("abcE", 4, "abcE")])
def test_txt_5_r11_what_waits_for_a_stop_string_is_delivered_at_the_end(
    run: object, said: str, n: int, text: str
) -> None:
    with serve(model=saying(spelled(said))) as served:
        found = run(served, ask(PROMPT, stop=stop(n, "END"))).output  # type: ignore[operator]
        assert (found.text, found.reason, found.ids) == (text, "MAX_TOKENS", spelled(said))


@BOTH
def test_txt_1_txt_3_stop_tokens_are_named_and_only_kept_where_asked_for(run: object) -> None:
    table = [*spelled("hello"), 777, *spelled("!")]
    with serve(model=saying(table)) as served:
        eos = served.state.model.eos_tokens[0]
        for keeps in (False, True):
            request = ask(PROMPT, stop=types_pb2.StopOptions(token_ids=[777], include_match=keeps))
            result: Result = run(served, request)  # type: ignore[operator]
            expected = [*spelled("hello"), 777][: 6 if keeps else 5]
            assert (result.output.ids, result.output.match) == (expected, ("token_id", 777))
            assert result.usage.output_tokens == 5  # whether the match is included or not
            assert result.output.text == vocabulary().decode(expected)
    with serve(model=saying([*spelled("hello"), eos])) as served:
        result = run(served, ask(PROMPT))  # type: ignore[operator]
        assert (result.output.ids, result.output.match) == (spelled("hello"), ("eos_token_id", eos))
        assert result.usage.output_tokens == 5


@BOTH
def test_gen_7_txt_2_r21_an_end_at_the_first_token_is_a_result(run: object) -> None:
    with serve() as served:
        eos = served.state.model.eos_tokens[0]
    with serve(model=saying([eos])) as served:
        result: Result = run(served, ask(PROMPT))  # type: ignore[operator]
        assert (result.output.ids, result.output.text, result.chunks) == ([], "", [])
        assert (result.output.reason, result.output.match) == ("STOP", ("eos_token_id", eos))
        assert (result.usage.prompt_tokens, result.usage.output_tokens) == (1, 0)
        going_on = run(served, ask(PROMPT, 3, stop=types_pb2.StopOptions(ignore_eos=True))).output  # type: ignore[operator]
        assert (going_on.ids, going_on.reason) == ([eos] * 3, "MAX_TOKENS")
        # The last allowed token is a stop token too: the reason is STOP.
        both = run(served, ask(PROMPT, 1)).output  # type: ignore[operator]
        assert both.reason == "STOP"


EMOJI = "a👩‍🚀né日本ü e\u0301!"


def test_txt_11_txt_12_r12_every_text_is_utf_8_and_all_of_them_are_the_tokens_text() -> None:
    """Characters of several tokens are cut at every limit. protobuf itself refuses text that is not UTF-8."""
    table = spelled(EMOJI)
    with serve(model=saying(table)) as served:
        for n in range(1, len(table) + 1):
            request = ask(PROMPT, stop=stop(n), output=output(1))
            result = streamed(served, request)
            assert result.output.text == vocabulary().decode(table[:n]) == in_one(served, request).output.text
            assert result.output.ids == table[:n]
        assert result.output.text == EMOJI


def test_txt_12_any_bytes_joined_are_the_tokens_text() -> None:
    draw = random.Random(12)
    table = spelled(bytes(draw.choice([draw.randrange(256), 0xE2, 0x82, 0xF0, 0x9F]) for _ in range(120)))
    with serve(model=saying(table)) as served:
        for n in (1, 2, 3, 5, 8, 13, 60, 120):
            for result in (streamed(served, ask(PROMPT, stop=stop(n))), in_one(served, ask(PROMPT, stop=stop(n)))):
                assert result.output.text == vocabulary().decode(table[:n])


@BOTH
def test_txt_13_text_comes_as_the_model_wrote_it(run: object) -> None:
    said = "  \n<think>\tno </think> [TOOL]{}\n\n "
    with serve(model=saying(spelled(said))) as served:
        assert run(served, ask(PROMPT, stop=stop(len(said)))).output.text == said  # type: ignore[operator]


@pytest.fixture(scope="module")
def counting() -> Served:
    with serve(model=scripted()) as served:
        yield served


@pytest.mark.few(3)
@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize("delay_ms", [0, 10])
def test_txt_14_r13_merging_changes_the_framing_only(counting: Served, chunk: int, delay_ms: int) -> None:
    asked = {"logprobs": True, "top_logprobs": 2}
    request = ask([400], stop=stop(40), output=output(chunk, delay_ms, **asked))
    result = streamed(counting, request)
    plain = streamed(counting, ask([400], stop=stop(40), output=output(**asked)))
    assert result.output == plain.output == in_one(counting, request).output
    assert result.output.ids == list(range(401, 441))
    if chunk == 1:
        assert result.chunks == [1] * 40
    assert max(result.chunks) <= chunk


def test_txt_14_a_first_token_is_never_held_back_and_later_ones_no_longer_than_asked(counting: Served) -> None:
    """With a delay of 10 s and chunks of 1000 tokens the first token comes at once, the rest together at the end."""
    with gate() as held, serve(model=held.model()) as served:
        request = ask([HELD - 3], stop=stop(30), output=output(1000, 10_000))
        began = served.state.clock()
        stream = served.inference.Generate(request, timeout=HANGS_AFTER)
        held.wait()
        # The engine stops after three tokens: only the rule for the first token sends a message now.
        assert next(stream).WhichOneof("event") == "started"
        first = next(stream).chunk.token_ids
        assert served.state.clock() - began < 10
        assert list(first) == [HELD - 2, HELD - 1, HELD][: len(first)] and len(first) >= 1
        held.open(ALL_STEPS)
        rest = [message.chunk.token_ids for message in stream if message.HasField("chunk")]
        assert [*first, *rest[0]] == list(range(HELD - 2, HELD + 28)) and len(rest) == 1
    full = streamed(counting, ask([400], stop=stop(31), output=output(10, 10_000)))
    assert sum(full.chunks) == 31 and max(full.chunks) == 10


def test_a_request_for_no_text_gets_none(counting: Served) -> None:
    assert streamed(counting, ask([400], stop=stop(5), output=output(text=False))).output.text == ""
