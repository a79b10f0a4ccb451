"""How models, generations, sessions and results show themselves, here and behind a server."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import imp_service
from imp_service import Client, LanguageModel
from imp_service.api.shown import MOST_SHOWN
from imp_service.api.tool_calls import ToolCallDelta
from support.servers.served import Served

PROMPT = "Once upon a time"
STORY = ", in a little house near the farm"
GREEDY: dict[str, Any] = {"max_tokens": 8, "temperature": 0}


def test_lib_8_a_model_shows_its_name_its_size_and_where_it_runs() -> None:
    with imp_service.load(None, "device.threads=1", "limits.max_context=256") as model:
        expected = "<LanguageModel imp demo: 3.7M parameters, Q8_0, context of 256 tokens, cpu, 1 thread>"
        assert repr(model) == str(model) == expected
    assert repr(model) == "<LanguageModel imp demo, closed>"


def test_lib_8_a_client_shows_its_server_without_a_call(served: Served) -> None:
    with imp_service.connect("127.0.0.1:1", timeout=0.1) as nobody:
        assert repr(nobody) == "<Client of 127.0.0.1:1>"
    with imp_service.connect(served.address) as client:
        assert repr(client) == f"<Client of {served.address}>"
        assert client.name == "imp demo"
        known = "imp demo: 3.7M parameters, Q8_0, context of 512 tokens"
        assert repr(client) == f"<Client of {served.address}, {known}>"
    assert served.address in repr(imp_service.connect_async(served.address))


def test_lib_8_a_generation_shows_how_far_it_is_and_how_to_get_its_text(model: LanguageModel | Client) -> None:
    generation = model.generate(PROMPT, **GREEDY)
    waits = "result().text waits for the whole text>"
    assert repr(generation) == str(generation) == f"<Generation: 0 tokens read so far; {waits}"
    n_read = sum(len(each.token_ids) for each in (next(generation), next(generation)) if hasattr(each, "token_ids"))
    assert n_read > 0 and repr(generation).startswith(f"<Generation: {n_read} token")
    generation.result()
    assert repr(generation) == f"<Generation: {STORY!r}, ended by max_tokens; result() has all of it>"
    with model.generate(PROMPT, ignore_eos=True) as left:
        next(left)
    assert repr(left) == "<Generation: closed or failed after 0 tokens>"


def test_lib_8_a_generation_of_asyncio_says_what_to_await(library: LanguageModel, served: Served) -> None:
    async def shown(model: Any, begin: Any) -> list[str]:
        generation = begin(PROMPT, **GREEDY)
        found = [repr(generation)]
        await generation.result()
        found.append(repr(generation))
        await generation.aclose()
        return [*found, repr(generation)]

    async def of_server() -> list[str]:
        async with imp_service.connect_async(served.address) as client:
            return await shown(client, client.generate)

    here = asyncio.run(shown(library, library.generate_async))
    how = "read it by `async for`, or await its result()>"
    assert here == [f"<AsyncGeneration, {state}: {how}" for state in ("not begun", "begun", "left")]
    first, second, _ = asyncio.run(of_server())
    assert first == "<AsyncGeneration: 0 tokens read so far; (await result()).text waits for the whole text>"
    assert second == f"<AsyncGeneration: {STORY!r}, ended by max_tokens; (await result()) has all of it>"


def test_lib_8_a_result_is_its_text_when_printed_and_one_line_when_shown(model: LanguageModel | Client) -> None:
    result = model.generate(PROMPT, **GREEDY).result()
    assert str(result) == result.text == STORY
    assert re.fullmatch(rf"<GenerationResult '{STORY}': 8 tokens in [\d.]+ m?s, ended by max_tokens>", repr(result))
    long = replace(result, text="a\n" * MOST_SHOWN)
    assert len(repr(long).splitlines()) == 1 and len(repr(long)) < 2 * MOST_SHOWN + 100
    called = replace(result, text="", tool_calls=[ToolCallDelta(0, "1", "get_weather", '{"city": "Rome"}')])
    assert 'get_weather({"city": "Rome"})' in repr(called)


class Printer:
    """What IPython gives an object that shows itself."""

    def __init__(self, depth: int) -> None:
        self.stack = [0] * depth
        self.written = ""

    def text(self, text: str) -> None:
        self.written += text


def test_lib_8_in_a_notebook_the_text_comes_first(library: LanguageModel) -> None:
    result = library.generate(PROMPT, **GREEDY).result()
    hostile = replace(result, text="<script>alert(1)</script>\n & more")
    alone, in_a_list = Printer(1), Printer(2)
    hostile._repr_pretty_(alone, False)
    hostile._repr_pretty_(in_a_list, False)
    assert alone.written.startswith("<script>alert(1)</script>\n & more\n— 8 tokens in ")
    assert in_a_list.written == repr(hostile)
    html = hostile._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\n &amp; more</div>" in html and "<script" not in html
    assert html.index("more") < html.index("8 tokens")
    called = replace(result, text="", tool_calls=[ToolCallDelta(0, "1", "f", "{}")])
    assert ">f({})</div>" in called._repr_html_()


def test_lib_8_a_reply_and_a_step_are_their_text_when_printed(model: LanguageModel | Client) -> None:
    replies = list(model.generate(PROMPT, **GREEDY))
    assert "".join(map(str, replies)) == STORY
    with model.open(temperature=0, seed=7) as session:
        assert repr(session) == "<Session: 0 tokens held, seed 7; prefill(), decode_step() and generate() go on>"
        step = session.prefill(PROMPT, logits=True)
        assert (str(step), repr(step)) == (",", f"<StepOutput ',': token {step.token_id}; 4 tokens held>")
        assert repr(session).startswith("<Session: 4 tokens held, seed 7; prefill()")
    assert repr(session) == "<Session: 4 tokens held, seed 7; closed>"


def test_lib_8_the_end_of_a_text_is_shown(library: LanguageModel) -> None:
    with library.open(temperature=0) as session:
        step = replace(session.prefill(PROMPT), eos=True)
    assert repr(step).endswith(", the end; 4 tokens held>")
