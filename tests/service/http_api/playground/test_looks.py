"""The page's look and accessibility: axe-core finds nothing, a keyboard reaches everything, pictures are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.servers.http_served import HttpServed
from support.servers.vision_served import file_of

ROOT = Path(__file__).resolve().parents[4]
SCREENSHOTS = ROOT / "build" / "screenshots"
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
SKY = "Why is the sky blue?"


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core."""
    if not AXE.is_file():
        pytest.skip("the packages are not installed: npm install --prefix tests/service/http_api/playground")
    return AXE.read_text(encoding="utf-8")


def violations(page: Page, source: str) -> list[str]:
    """Returns axe-core's findings. The page's policy forbids other scripts, so the debugger runs it."""
    session = page.context.new_cdp_session(page)
    run = "axe.run().then(({ violations, passes }) => ({ violations, n: passes.length }))"
    session.send("Runtime.evaluate", {"expression": source})
    reply = session.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
    found = reply["result"]["value"]
    assert found["n"] > 10
    return [f"{each['id']}: {[node['html'] for node in each['nodes']]}" for each in found["violations"]]


@pytest.fixture
def look(axe: str, width: int, scheme: str) -> Callable[[Any, str], None]:
    """Returns a function that keeps a picture of the page, and checks accessibility and width."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def looking(it: Any, state: str) -> None:
        it.page.screenshot(path=SCREENSHOTS / f"{state}-{width}-{scheme}.png")
        assert violations(it.page, axe) == []
        page, window = it.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert page <= window

    return looking


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1400])
def test_ply_4_ply_5_every_state_is_accessible_and_kept_as_a_picture(
    http: HttpServed, visit: Any, look: Any, width: int, scheme: str
) -> None:
    with visit(http, width=width, scheme=scheme) as it:
        expect(it.page.get_by_text("Say something to imp-demo")).to_be_visible()
        look(it, "empty")
        if it.page.locator("#tune").is_visible():
            it.page.locator("#tune").click()
            look(it, "drawer")
            it.button("Close").click()
        it.set(seed=11, temperature=0.9)
        it.ask(SKY)
        it.ask("Tell me a short story.")
        look(it, "answer")
        it.button("Tokens").click()
        it.page.locator(".token").nth(6).focus()
        look(it, "tokens")
        it.button("As code").click()
        look(it, "code")
        it.page.keyboard.press("Escape")
        it.page.locator(".figures summary").last.click()
        it.button("Delete").click()
        look(it, "sure")
        it.list_conversations()
        look(it, "conversations")
        it.page.keyboard.press("Escape")
        it.set(max_tokens=5)
        it.ask(SKY)
        it.button("Edit answer").click()
        look(it, "edit")
        it.button("Cancel").click()
        it.page.evaluate("scrollTo(0, 0)")
        look(it, "cut")
        it.button("New chat").click()
        it.say("word " * 150 + "\n" + "word " * 500)
        it.page.get_by_role("alert").wait_for()
        look(it, "error")


@pytest.mark.sweep("scheme")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1400])
def test_ply_4_ply_5_a_formatted_answer_is_accessible_and_kept_as_a_picture(
    formatted: HttpServed, visit: Any, look: Any, width: int, scheme: str
) -> None:
    with visit(formatted, width=width, scheme=scheme) as it:
        it.ask("Hi")
        look(it, "formatted")


@pytest.mark.sweep("scheme")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1400])
def test_ply_4_ply_5_a_question_with_pictures_is_accessible_and_kept_as_a_picture(
    seeing: HttpServed, visit: Any, look: Any, width: int, scheme: str
) -> None:
    with visit(seeing, width=width, scheme=scheme) as it:
        for n in (1, 2):
            it.give(file_of(n), "choose")
            expect(it.page.locator("#pictures img")).to_have_count(n)
        look(it, "pictures")
        it.set(max_tokens=8, seed=7)
        it.ask("What are these?")
        look(it, "asked")


@pytest.mark.long
def test_ply_4_it_can_be_used_by_keyboard_alone(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        press = it.page.keyboard.press

        def tab_to(name: str, key: str = "Tab") -> None:
            for _ in range(40):
                press(key)
                here = it.page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent")
                if here == name:
                    return
            raise AssertionError(f"{name} is not reached")

        it.page.keyboard.type("Tell me")
        press("Shift+Enter")
        it.page.keyboard.type("a short story.")
        press("Enter")
        it.button("Same again").wait_for()
        assert it.page.locator(".asked p").text_content() == "Tell me\na short story."
        tab_to("Tokens", "Shift+Tab")
        press("Enter")
        expect(it.page.locator(".tokens")).to_be_visible()
        # Skips the copy button.
        press("Shift+Tab")
        press("Shift+Tab")
        assert it.page.locator(".token:focus").count() == 1
        for key in ("End", "Home", "ArrowRight", "ArrowRight", "ArrowLeft"):
            press(key)
        assert it.page.locator(".token").nth(1).evaluate("token => token === document.activeElement")
        press("ArrowDown")
        press("ArrowDown")
        press("Enter")
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        tab_to("Previous answer")
        press("Enter")
        expect(it.page.get_by_text("1 of 2")).to_be_visible()
        tab_to("As code")
        press("Enter")
        expect(it.page.locator("#code")).to_be_visible()
        press("Escape")
        expect(it.page.locator("#code")).to_be_hidden()
        assert it.console == []


@pytest.mark.long
def test_ply_4_the_scheme_is_the_system_s_until_it_is_switched(http: HttpServed, visit: Any) -> None:
    with visit(http, scheme="dark") as it:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = it.page.evaluate(ground)
        it.button("Light colours").click()
        light = it.page.evaluate(ground)
        assert dark != light
        it.open()
        assert it.page.evaluate(ground) == light
        it.button("Dark colours").click()
        assert it.page.evaluate(ground) == dark
