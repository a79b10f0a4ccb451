"""Pictures on the page: chosen, dropped and pasted; what is sent of them, and what is off beside them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from support.servers.http_served import HttpServed
from support.servers.vision_served import CELLS, QUESTION, content_of, data_url, file_of, said

FIELDS = {"seed": 7, "temperature": 2, "max_tokens": 8}


def reply_to(http: HttpServed, content: list[dict[str, Any]]) -> str:
    """Returns the API's answer to a message of these parts."""
    return str(http.chat(said(content), **FIELDS).choice["message"]["content"])


def content(*seeds: int, text: str = QUESTION) -> list[dict[str, Any]]:
    """Returns pictures, then a text."""
    urls = [content_of({"url": data_url(file_of(seed))})[0] for seed in seeds]
    return [*urls, {"type": "text", "text": text}]


@pytest.mark.parametrize("way", ["choose", "drop", "paste"])
def test_vis_9_the_page_asks_about_a_picture(way: str, seeing: HttpServed, visit: Any) -> None:
    with visit(seeing) as it:
        it.set(**FIELDS)
        expect(it.button("Add a picture")).to_be_visible()
        it.give(file_of(1), way)
        expect(it.page.locator("#pictures img")).to_have_count(1)
        it.ask(QUESTION)
        assert it.bodies[-1]["messages"] == said(content(1))
        assert it.answer == reply_to(seeing, content(1)) != reply_to(seeing, content(2))
        shown = it.page.locator(".asked img")
        assert [each.get_attribute("src") for each in shown.all()] == [data_url(file_of(1))]
        assert shown.evaluate("image => image.naturalWidth > 0 && image.height < 120")
        expect(it.page.locator(".asked small")).to_have_text(f"1 picture · {CELLS} tokens")
        assert f"({CELLS} of pictures, " in it.figures
        expect(it.page.locator("#pictures img")).to_have_count(0)
        assert (it.console, it.left_origin) == ([], [])


def test_vis_9_pictures_stay_in_the_conversation_of_the_page(seeing: HttpServed, visit: Any) -> None:
    with visit(seeing) as it:
        it.set(**FIELDS)
        for seed in (0, 1, 2):
            it.give(file_of(seed), "choose")
            expect(it.page.locator("#pictures img")).to_have_count(seed + 1)
        it.button("Remove picture 2").click()
        it.ask(QUESTION)
        it.give(file_of(3), "paste")
        expect(it.page.locator("#pictures img")).to_have_count(1)
        it.ask("And this?")
        [first, _, last] = it.bodies[-1]["messages"]
        assert (first["content"], last["content"]) == (content(0, 2), content(3, text="And this?"))
        told = [f"2 pictures · {2 * CELLS} tokens", f"1 picture · {CELLS} tokens"]
        assert it.page.locator(".asked small").all_text_contents() == told
        it.reload()
        assert it.page.locator(".asked small").all_text_contents() == told
        assert it.page.locator(".asked img").count() == 3
        it.page.get_by_role("button", name="Edit", exact=True).first.click()
        it.page.locator(".asked textarea").fill("What are these?")
        it.page.keyboard.press("Enter")
        expect(it.page.locator(".turn")).to_have_count(1)
        it.button("Same again").wait_for()
        assert it.bodies[-1]["messages"] == said(content(0, 2, text="What are these?"))


def test_vis_9_an_answer_to_a_picture_is_continued_by_its_text_alone(seeing: HttpServed, visit: Any) -> None:
    """Its request has no list of ids: the ids of a picture's cells say nothing of the picture."""
    with visit(seeing) as it:
        it.set(**FIELDS)
        it.give(file_of(0), "drop")
        expect(it.page.locator("#pictures img")).to_have_count(1)
        it.ask(QUESTION)
        it.button("Tokens").click()
        it.page.locator(".token").first.focus()
        expect(it.page.get_by_text("With a picture, an answer continues from none:")).to_be_visible()
        choices = it.page.locator(".card button")
        assert choices.count() >= 5
        expect(it.page.locator(".card button:enabled")).to_have_count(0)
        it.button("As code").click()
        code = it.page.locator("#call").text_content()
        assert "data:image/png;base64,…" in code and len(code) < 1000
        it.page.keyboard.press("Escape")
        it.button("Continue").click()
        it.button("Same again").wait_for()
        assert it.bodies[-1]["continue_final_message"] and it.bodies[-1]["messages"][0] == said(content(0))[0]


def test_vis_9_the_page_says_what_is_no_picture(seeing: HttpServed, http: HttpServed, visit: Any) -> None:
    with visit(seeing) as it:
        it.give(b"%PDF-1.7", "choose", kind="application/pdf")
        expect(it.page.get_by_text("The model reads pictures in PNG, JPEG, WebP and GIF.")).to_be_visible()
        it.give(b"no picture", "choose")
        it.say(QUESTION)
        expect(it.page.get_by_role("alert")).to_contain_text("is no PNG, JPEG, WebP or GIF")
    with visit(http) as it:
        expect(it.page.locator("#model")).not_to_be_empty()
        expect(it.page.locator("#picture")).to_be_hidden()
        it.give(file_of(0), "paste")
        it.ask("Hi")
        assert it.bodies[-1]["messages"] == said("Hi")
