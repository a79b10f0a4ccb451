"""Conversations that outlive a reload: where they are, what is in them, and browsers that refuse to store them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import ENDLESS, scripted

NO_END = "model.overrides.eos_token_ids=[]"
WHO = "Who are you?"
SKY = "Why is the sky blue?"
IN_BROWSER = "Object.keys(localStorage).filter(name => name.startsWith('impChat:'))"
IN_TAB = "Object.keys(sessionStorage).filter(name => name.startsWith('impChat:'))"
FORBIDDEN = """for (const name of ['localStorage', 'sessionStorage'])
    Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError') } })"""
# Fills the browser's storage but for a few bytes.
FILL = """() => {
    for (let n = 1 << 22, i = 0; n > 8; n >>= 1) for (let fits = true; fits; i++)
        try { localStorage['full' + i] = 'x'.repeat(n) } catch { fits = false }
}"""


def keep(it: Any) -> None:
    """Turns the switch, in the list of conversations."""
    it.page.locator("#list").click()
    it.page.get_by_role("switch", name="Keep conversations in this browser").click()
    it.button("Close").click()


@pytest.mark.few(1)
@pytest.mark.parametrize("is_kept", [False, True])
def test_ply_7_a_conversation_and_its_parameters_survive_a_reload(
    http: HttpServed, visit: Any, *, is_kept: bool
) -> None:
    with visit(http) as it:
        if is_kept:
            keep(it)
        it.set(seed=7, temperature=0.5, system="Be short.")
        it.ask(WHO)
        it.ask(SKY)
        it.button("Another answer").click()
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        it.button("Previous answer").click()
        before = it.page.locator("#talk").inner_text()
        it.reload()
        assert it.page.locator("#talk").inner_text() == before
        values = [it.page.locator(f"#{name}").input_value() for name in ("seed", "temperature", "system")]
        assert values == ["7", "0.5", "Be short."]
        assert (len(it.page.evaluate(IN_BROWSER)), len(it.page.evaluate(IN_TAB))) == (is_kept, not is_kept)
        # It goes on where it was.
        it.ask("Name three fruits.")
        assert [each["content"] for each in it.bodies[-1]["messages"]][:2] == ["Be short.", WHO]
        assert len(it.bodies[-1]["messages"]) == 6
        assert it.console == []


@pytest.mark.long
def test_ply_7_parameters_survive_a_reload_before_the_first_message(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(temperature=0.25)
        it.page.locator("#text").click()
        it.reload()
        assert it.page.locator("#temperature").input_value() == "0.25"
        expect(it.page.locator("#hello")).to_be_visible()


@pytest.mark.long
def test_ply_7_an_answer_that_a_reload_cuts_is_kept_as_far_as_it_came(visit: Any) -> None:
    with serve_http(NO_END, model=scripted(**ENDLESS)) as http, visit(http) as it:
        it.say("count")
        expect(it.page.locator(".reply")).not_to_be_empty()
        it.reload()
        http.wait_for_rest()
        assert "you left it" in it.figures and it.answer
        expect(it.button("Continue")).to_be_visible()


@pytest.mark.long
def test_ply_7_stored_answers_say_what_is_not_stored(http: HttpServed, visit: Any) -> None:
    """The scores of tokens are large. The same seed gives them again."""
    with visit(http) as it:
        it.ask(WHO)
        first = it.answer
        (name,) = it.page.evaluate(IN_TAB)
        text = it.page.evaluate("name => sessionStorage[name]", name)
        assert "logprob" not in text.replace('"view"', "") and len(text) < 2000
        it.reload()
        expect(it.button("Tokens")).to_be_disabled()
        assert it.button("Tokens").get_attribute("title") == "Tokens: their scores are not kept"
        it.button("As code").click()
        assert WHO in it.page.locator("#call").text_content()
        it.page.keyboard.press("Escape")
        it.button("Same again").click()
        expect(it.page.locator(".note")).to_contain_text("The same answer again: all")
        it.button("Tokens").click()
        assert "".join(it.page.locator(".token").all_text_contents()) == first


@pytest.mark.long
def test_ply_7_conversations_are_listed_opened_and_deleted(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        for text in (WHO, SKY):
            it.ask(text)
            it.button("New chat").click()
        assert it.list_conversations() == [SKY, WHO]
        it.page.locator("#chatlist").get_by_text(WHO).click()
        assert it.page.locator(".asked p").all_text_contents() == [WHO]
        it.list_conversations()
        expect(it.page.locator("#chatlist [aria-current=true]")).to_contain_text(WHO)
        # Another press than the second, on the same button, deletes nothing.
        it.button(f"Delete “{WHO}”").click()
        it.page.locator("#chatshead").click()
        expect(it.page.locator("#chatlist li")).to_have_count(2)
        it.button(f"Delete “{WHO}”").click()
        it.button("Delete?").click()
        expect(it.page.locator("#chatlist li")).to_have_count(1)
        it.button("Delete all").click()
        it.button("Really delete 1 conversation?").click()
        expect(it.page.locator("#chatlist li")).to_have_count(0)
        it.button("Close").click()
        expect(it.page.locator("#hello")).to_be_visible()
        assert it.page.evaluate(IN_TAB) == []
        it.reload()
        expect(it.page.locator("#hello")).to_be_visible()


@pytest.mark.long
def test_ply_7_the_switch_says_where_conversations_are_and_off_removes_them(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        expect(it.page.locator("#kept")).to_contain_text("Conversations stay in this tab")
        it.ask(WHO)
        assert it.page.evaluate("localStorage.length") == 0
        keep(it)
        assert (len(it.page.evaluate(IN_BROWSER)), it.page.evaluate(IN_TAB)) == (1, [])
        it.button("New chat").click()
        expect(it.page.locator("#kept")).to_contain_text("Whoever uses this browser can read them.")
        other = it.page.context.new_page()
        other.goto(f"{it.origin}/")
        other.locator("#list").click()
        expect(other.locator("#chatlist")).to_contain_text(WHO)
        other.close()
        keep(it)
        assert it.page.evaluate("localStorage.length") == 0
        assert it.list_conversations() == [WHO]


@pytest.mark.long
def test_ply_7_two_tabs_do_not_write_over_each_other(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        keep(it)
        it.ask(WHO)
        other = type(it)(it.page.context.new_page(), it.origin)
        other.open()
        assert other.list_conversations() == [WHO]
        other.page.locator("#chatlist").get_by_text(WHO).click()
        other.ask("From the other tab")
        it.ask("From the first tab")
        stored = it.page.evaluate(f"{IN_BROWSER}.map(name => localStorage[name])")
        asked = [[turn["text"] for turn in json.loads(text)["turns"]] for text in stored]
        assert sorted(asked) == [[WHO, "From the first tab"], [WHO, "From the other tab"]]
        it.ask("Again")
        assert len(it.page.evaluate(IN_BROWSER)) == 2


@pytest.mark.long
def test_ply_7_a_browser_that_stores_nothing_still_has_the_page(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.page.add_init_script(FORBIDDEN)
        it.open()
        expect(it.page.locator("#kept")).to_contain_text("lets this page store nothing, so a reload starts over")
        it.ask(WHO)
        assert it.list_conversations() == [WHO]
        expect(it.page.get_by_role("switch")).to_be_disabled()
        assert it.console == []


@pytest.mark.long
def test_ply_7_full_storage_is_reported_and_harms_nothing(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        keep(it)
        it.ask(WHO)
        it.page.evaluate(FILL)
        it.ask("Tell me a short story.")
        expect(it.page.locator("#unkept")).to_be_visible()
        assert it.answer
        it.page.evaluate(
            "for (const name of Object.keys(localStorage)) if (name.startsWith('full')) delete localStorage[name]"
        )
        it.ask(SKY)
        expect(it.page.locator("#unkept")).to_be_hidden()
        it.reload()
        expect(it.page.locator(".turn")).to_have_count(3)
        assert it.console == []


@pytest.mark.long
@pytest.mark.parametrize("text", ["", "{", '{"form": 99, "turns": 3}', '{"form": 1}', "null"])
def test_ply_7_what_another_version_stored_is_left_alone(http: HttpServed, visit: Any, text: str) -> None:
    with visit(http) as it:
        it.page.evaluate("text => { localStorage['impChat:old'] = text; sessionStorage.impOpen = 'old' }", text)
        it.reload()
        assert it.list_conversations() == []
        assert it.page.evaluate("localStorage['impChat:old']") == text
        assert it.console == []
