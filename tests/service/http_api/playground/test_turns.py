"""Turns: what fails or is cut, what is sent of it later, and what a user can change in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from support.servers.cutting_proxy import CuttingProxy
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import ENDLESS, scripted
from support.servers.server_process import server_process

NO_END = "model.overrides.eos_token_ids=[]"
# Long enough that an answer does not end before the test kills its server.
LONG = (NO_END, "model.overrides.max_context=8192", "model.overrides.untrained_context=true")
WHO = "Who are you?"
SKY = "Why is the sky blue?"
STORY = "Tell me a short story."
BROKEN = "The connection broke before the answer was complete. Is the server still running? What had arrived is kept."


def said(it: Any) -> list[tuple[str, str]]:
    """Returns role and text of the messages that the page sent last."""
    return [(each["role"], each["content"]) for each in it.bodies[-1]["messages"]]


def give_up(it: Any) -> None:
    """Lets the time pass that the page waits for the server."""
    expect(it.page.locator(".figures")).to_contain_text("waiting for the server…")
    it.page.clock.fast_forward(60_000)
    expect(it.page.get_by_role("alert")).to_have_text(BROKEN)


def test_ply_8_a_turn_that_failed_is_not_sent_with_later_messages(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=7)
        it.say("word " * 600)
        it.page.get_by_role("alert").wait_for()
        expect(it.page.get_by_text("Later messages are sent without this one.")).to_be_visible()
        it.ask(WHO)
        assert said(it) == [("user", WHO)]
        assert it.answer == http.chat(WHO, seed=7).choice["message"]["content"]


@pytest.mark.long
def test_ply_8_a_stopped_answer_is_sent_as_far_as_it_came(visit: Any) -> None:
    with serve_http(NO_END, model=scripted(**ENDLESS)) as http, visit(http) as it:
        for text in ("count", "more"):
            it.say(text)
            expect(it.page.locator(".reply").last).not_to_be_empty()
            it.button("Stop").click()
            it.button("Same again").wait_for()
        assert [role for role, _ in said(it)] == ["user", "assistant", "user"]
        it.page.get_by_role("button", name="Plain text").first.click()
        assert said(it)[1][1] == it.page.locator(".reply").first.text_content()


@pytest.mark.long
def test_ply_8_a_connection_that_breaks_is_reported_in_words(visit: Any) -> None:
    with serve_http(NO_END, model=scripted(**ENDLESS)) as http:
        proxy = CuttingProxy(http.http.addresses[0])
        try:
            with visit(f"http://{proxy.address}") as it:
                it.page.clock.install()
                it.say("count")
                expect(it.page.locator(".reply")).not_to_be_empty()
                # Or the answer would go on.
                it.page.route("**/v1/chat/completions", lambda route: route.abort())
                proxy.cut()
                give_up(it)
                it.page.unroute("**/v1/chat/completions")
                partial = it.answer
                assert partial
                it.button("Try again").click()
                expect(it.page.locator(".reply")).not_to_be_empty()
                it.button("Stop").click()
                expect(it.page.get_by_text("2 of 2")).to_be_visible()
                it.button("Previous answer").click()
                assert it.answer == partial
                it.button("Continue").click()
                expect(it.page.get_by_role("alert")).to_have_count(0)
                it.button("Stop").click()
                expect(it.page.get_by_text("3 of 3")).to_be_visible()
                assert it.answer.startswith(partial)
        finally:
            proxy.close()


@pytest.mark.long
def test_ply_8_a_stream_without_its_end_is_a_broken_connection(http: HttpServed, visit: Any) -> None:
    """A proxy may end a stream as if it were complete."""
    event = 'data: {"choices": [{"delta": {"content": "Half an"}}]}\n\n'
    with visit(http) as it:
        it.page.route(
            "**/v1/chat/completions", lambda route: route.fulfill(body=event, content_type="text/event-stream")
        )
        it.say(WHO)
        expect(it.page.get_by_role("alert")).to_have_text(BROKEN)
        expect(it.page.locator(".reply")).to_have_text("Half an")
        expect(it.button("Continue")).to_be_visible()


@pytest.mark.long
def test_ply_8_a_server_that_is_killed_is_reported_in_words(tmp_path: Path, visit: Any) -> None:
    with server_process(tmp_path, "--http", "0", settings=LONG) as server:
        (address,) = server.wait_until_ready()["http"]
        with visit(f"http://{address}") as it:
            it.page.clock.install()
            it.say(STORY)
            expect(it.page.locator(".reply")).not_to_be_empty()
            server.kill()
            give_up(it)
            assert it.answer
            it.button("Try again").click()
            expect(it.page.get_by_role("alert")).to_have_text("The server does not answer. Is it still running?")


@pytest.mark.long
def test_ply_8_an_answer_cut_by_a_limit_continues_as_the_longer_answer(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(max_tokens=5, temperature=0, seed=1)
        it.ask(STORY)
        it.ask(WHO)
        it.page.get_by_role("button", name="Continue").first.click()
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        # The turns after it stay.
        assert it.page.locator(".asked p").all_text_contents() == [STORY, WHO]
        it.button("Delete").click()
        it.button("Delete this turn?").click()
        longer = http.chat(STORY, max_tokens=10, temperature=0, seed=1).choice["message"]["content"]
        assert it.answer == longer
        it.button("Tokens").click()
        expect(it.page.locator(".token")).to_have_count(10)
        # What ended by itself has nothing to continue.
        it.set(max_tokens="")
        it.button("Continue").click()
        expect(it.page.get_by_text("3 of 3")).to_be_visible()
        assert it.answer == http.chat(STORY, temperature=0, seed=1).choice["message"]["content"]
        expect(it.button("Continue")).to_have_count(0)


@pytest.mark.long
def test_ply_8_a_stored_or_edited_answer_continues_as_the_api_continues_it(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(max_tokens=5, temperature=0, seed=1)
        it.ask(STORY)
        it.button("Edit answer").click()
        it.page.get_by_label("Answer", exact=True).fill("The old cat")
        it.button("Save").click()
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        expect(it.page.locator(".figures")).to_have_text("You wrote it.")
        it.reload()
        it.button("Continue").click()
        expect(it.page.get_by_text("3 of 3")).to_be_visible()
        messages = [{"role": "user", "content": STORY}, {"role": "assistant", "content": "The old cat"}]
        fields = {"max_tokens": 5, "temperature": 0, "seed": 1, "continue_final_message": True}
        assert it.answer == "The old cat" + http.chat(messages, **fields).choice["message"]["content"]
        expect(it.button("Tokens")).to_be_disabled()
        it.ask(WHO)
        assert said(it)[1] == ("assistant", it.page.locator(".reply").first.text_content())


@pytest.mark.long
def test_ply_8_an_answer_that_fits_a_schema_is_not_continued(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(max_tokens=3, response_format='{"type": "object"}')
        it.ask(WHO)
        assert "it reached your limit of 3 tokens" in it.figures
        expect(it.button("Continue")).to_have_count(0)


@pytest.mark.long
def test_ply_8_a_turn_can_be_deleted(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=7)
        it.ask(STORY)
        it.ask(SKY)
        it.page.get_by_role("button", name="Delete", exact=True).first.click()
        it.button("Delete this turn?").click()
        assert it.page.locator(".asked p").all_text_contents() == [SKY]
        answer = it.answer
        it.ask(WHO)
        assert said(it) == [("user", SKY), ("assistant", answer), ("user", WHO)]
        it.reload()
        assert it.page.locator(".asked p").all_text_contents() == [SKY, WHO]


@pytest.mark.long
def test_ply_8_a_button_leads_back_to_the_end(http: HttpServed, visit: Any) -> None:
    with visit(http, width=390) as it:
        for text in (STORY, SKY, STORY):
            it.ask(text)
        expect(it.button("To the end")).to_have_count(0)
        it.page.evaluate("scrollTo(0, 0)")
        it.button("To the end").click()
        expect(it.button("To the end")).to_have_count(0)
        assert it.page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY") < 2
