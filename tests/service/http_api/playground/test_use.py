"""The page in use: it sends, streams and stops, and it explains errors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from imp_service.config import read_settings
from imp_service.http_api.server import HttpServer
from imp_service.serving.listening import checked_addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.models.worded_encoders import write_encoder
from support.run.patience import HANGS_AFTER
from support.servers.http_served import HttpServed, serve_http
from support.servers.loop_thread import loop_thread
from support.servers.served import DEFAULTS
from support.servers.served_models import ENDLESS, built_in, from_file, scripted

# No token ends an answer.
NO_END = "model.overrides.eos_token_ids=[]"
SKY = "Why is the sky blue?"


def asked(http: HttpServed, *messages: str, **fields: Any) -> str:
    """Returns the API's answer to a conversation. The messages alternate between user and assistant."""
    roles = ("user", "assistant")
    reply = [{"role": roles[i % 2], "content": text} for i, text in enumerate(messages)]
    return str(http.chat(reply, **fields).choice["message"]["content"])


@pytest.mark.few(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1400])
def test_ply_1_ply_2_it_answers_as_the_api_does_and_asks_nobody_else(
    http: HttpServed, visit: Any, width: int, scheme: str
) -> None:
    with visit(http, width=width, scheme=scheme) as it:
        it.set(seed=7)
        it.ask(SKY)
        first = it.answer
        assert first == asked(http, SKY, seed=7)
        it.ask("Tell me a short story.")
        assert it.answer == asked(http, SKY, first, "Tell me a short story.", seed=7)
        for part in ("tokens/s · it ended by itself", " output · first token in ", " · seed 7"):
            assert part in it.figures
        assert (it.console, it.left_origin) == ([], [])


@pytest.mark.long
def test_ply_2_the_figures_are_those_of_the_api(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=1, max_tokens=5, temperature=0)
        it.ask("Name three fruits.")
        usage = http.chat("Name three fruits.", seed=1, max_tokens=5, temperature=0).json["usage"]
        assert it.figures.startswith(f"{usage['completion_tokens']} tokens · ")
        assert "it reached your limit of 5 tokens" in it.figures
        assert f"{usage['prompt_tokens']} prompt tokens (" in it.figures
        assert f" + {usage['completion_tokens']} output · " in it.figures


@pytest.mark.long
def test_ply_2_oai_16_a_limit_beyond_the_context_ends_with_the_context_and_says_so(visit: Any) -> None:
    with serve_http(NO_END, "limits.max_context=128") as http, visit(http) as it:
        it.set(seed=1, max_tokens=4096)
        it.ask(SKY)
        assert it.answer == asked(http, SKY, seed=1)
        assert "the model’s context of 128 tokens is full" in it.figures
        it.say("sky " * 200)
        problem = it.page.get_by_role("alert")
        expect(problem).to_contain_text("The conversation is longer than the model can read.")
        expect(problem).not_to_contain_text("max_tokens")


@pytest.mark.long
def test_ply_2_an_answer_grows_and_stops_when_it_is_stopped(visit: Any) -> None:
    with serve_http(NO_END, model=scripted(**ENDLESS)) as http, visit(http) as it:
        for stop in (lambda: it.button("Stop").click(), lambda: it.page.keyboard.press("Escape")):
            it.say("count")
            expect(it.page.locator(".reply").last).not_to_be_empty()
            assert http.served.metric("imp_requests_active") == 1
            stop()
            it.button("Same again").wait_for()
            assert "you stopped it" in it.figures
            http.wait_for_rest()
            assert http.served.metric("imp_requests_active") == 0
            it.button("New chat").click()


@pytest.mark.long
def test_ply_2_leaving_the_page_frees_its_request(visit: Any) -> None:
    with serve_http(NO_END, model=scripted(**ENDLESS)) as http:
        with visit(http) as it:
            it.say("count")
            expect(it.page.locator(".reply").last).not_to_be_empty()
        http.wait_for_rest()


@pytest.mark.long
def test_ply_2_parameters_reach_the_model_and_are_marked(http: HttpServed, visit: Any) -> None:
    fields = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "max_tokens": 30, "seed": 3}
    schema = {"type": "object", "properties": {"name": {"enum": ["Tom", "Ann"]}}, "required": ["name"]}
    with visit(http) as it:
        it.set(**fields, stop="river\n\\n\\n")
        assert it.page.locator(".changed").count() == 7
        it.ask("Tell me a short story.")
        assert it.answer == asked(http, "Tell me a short story.", stop=["river", "\n\n"], **fields)
        it.button("Reset").click()
        expect(it.page.locator(".changed")).to_have_count(0)
        it.button("New chat").click()
        it.set(seed=3, response_format=json.dumps(schema), system="Be short.")
        it.ask("Who are you?")
        reply = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who are you?"}]
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        assert it.answer == http.chat(reply, seed=3, response_format=wanted).choice["message"]["content"]


@pytest.mark.long
def test_ply_2_the_same_seed_gives_the_same_answer_and_the_page_says_so(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.ask("Tell me a short story.")
        first = it.answer
        it.button("Same again").click()
        expect(it.page.locator(".note")).to_contain_text("The same answer again: all")
        assert it.answer == first
        it.button("Another answer").click()
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        assert it.answer != first
        it.button("Previous answer").click()
        assert it.answer == first


@pytest.mark.long
def test_ply_2_an_edited_message_replaces_what_came_after_it(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=5)
        it.ask("Who are you?")
        it.ask(SKY)
        it.page.get_by_role("button", name="Edit", exact=True).first.click()
        it.page.locator(".asked textarea").fill("Name three fruits.")
        it.page.keyboard.press("Enter")
        expect(it.page.locator(".turn")).to_have_count(1)
        it.button("Same again").wait_for()
        assert it.answer == asked(http, "Name three fruits.", seed=5)


@pytest.mark.long
def test_ply_2_the_shown_code_gives_the_shown_answer(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(top_k=20, min_p=0.02, stop="zebra")
        it.ask('Who\'s "é" \\ $HOME `x`?\n\U0001f600')
        answer = it.answer
        it.button("As code").click()
        code = it.page.locator("#call")
        replied = output_of("bash", "-c", code.text_content())
        assert json.loads(replied)["choices"][0]["message"]["content"] == answer
        it.page.get_by_role("tab", name="Python").click()
        assert output_of(sys.executable, "-c", code.text_content()) == f"{answer}\n"


def output_of(*command: str) -> str:
    """Returns the command's output."""
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, check=True).stdout


@pytest.mark.long
def test_ply_2_errors_are_reported_in_words(visit: Any) -> None:
    with serve_http() as http, visit(http) as it:
        problem = it.page.get_by_role("alert")
        it.say("word " * 600)
        expect(problem).to_contain_text("The conversation is longer than the model can read.")
        it.button("New chat").click()
        it.set(response_format='{"type": "sound"}')
        it.say("Hi")
        expect(problem).to_contain_text("The server could not do this. Response_format")
        it.set(response_format="{")
        it.say("Hi")
        assert (
            it.page.locator("#response_format").evaluate("node => node.validationMessage").startswith("This is no JSON")
        )
        it.set(response_format="")
        it.button("New chat").click()
        http.stop()
        it.say("Hi")
        expect(problem).to_have_text("The server does not answer. Is it still running?")


@pytest.mark.long
def test_ply_2_it_asks_for_the_key_and_keeps_it_for_the_tab(guarded: HttpServed, key: str, visit: Any) -> None:
    with visit(guarded) as it:
        field = it.page.get_by_label("This server asks for a key")
        field.fill("wrong")
        it.page.keyboard.press("Enter")
        expect(it.page.get_by_text("The server does not know this key.")).to_be_visible()
        field.fill(key)
        it.page.keyboard.press("Enter")
        expect(it.page.get_by_text("Say something to imp-demo")).to_be_visible()
        it.ask("Who are you?")
        it.button("As code").click()
        assert "$IMP_KEY" in it.page.locator("#call").text_content()
        assert key not in it.page.content()
        it.open()
        expect(it.page.locator(".turn")).to_have_count(1)
        assert it.page.evaluate("localStorage.length + document.cookie.length") == 0
        kept = it.page.evaluate("Object.entries(sessionStorage)")
        assert [name for name, text in kept if key in text] == ["impKey"]


@pytest.mark.long
def test_ply_2_it_waits_for_the_model_and_begins_by_itself(visit: Any) -> None:
    loop = loop_thread()
    config = read_settings(None, [*DEFAULTS, 'listen.http=["127.0.0.1:0"]', 'listen.grpc=["127.0.0.1:0"]'])

    async def start() -> tuple[ServerState, HttpServer]:
        state = ServerState(config, clock=loop.clock, wall=loop.clock.wall)
        server = HttpServer(state, Access(state))
        server.bind(checked_addresses(config.settings.listen, state.telemetry.log))
        server.start()
        return state, server

    state, server = loop.run(start())
    try:
        with visit(f"http://{server.addresses[0]}") as it:
            expect(it.page.get_by_text("The model is loading…")).to_be_visible()
            it.say("Who are you?")

            async def load() -> None:
                state.adopt(await asyncio.to_thread(built_in().make, config, loop.clock))

            loop.run(load())
            it.button("Same again").wait_for()
            assert it.answer
            expect(it.page.get_by_text("The model is loading…")).to_have_count(0)
    finally:
        loop.run(server.stop(0))
        loop.call(state.close)


def test_emb_7_the_page_of_an_embedding_model_does_not_chat(tmp_path: Path, visit: Any) -> None:
    encoder = from_file(write_encoder(tmp_path / "mean"))
    with serve_http(model=encoder) as http, visit(http) as it:
        expect(it.page.locator("#state")).to_contain_text("is an embedding model")
        for hidden in ("#ask", "#ideas", "#knobs", "#fresh"):
            expect(it.page.locator(hidden)).to_be_hidden()
        assert it.console == []
