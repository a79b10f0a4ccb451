"""Answers as Markdown: what is formatted and coloured, what stays text, and that no answer freezes the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import expect

from support.servers.http_served import HttpServed
from support.text.growing_markdown import grown_and_whole

# Seconds of processor time, far below those of a quadratic algorithm.
SHORT_SECONDS = 3.0
SAME_AS_ORACLE = [
    (
        "# *a*\n\nb\n\n| c | d |\n|:--|--:|\n| a_b | 1 |\n| 2\n\n> See [the docs](https://docs.python.org/3/) or https://e.example/a_b."
    ),
    "a *b* **c** ***d*** _e_ __f__ ~~g~~ snake_case_name 2 * 3 * 4 **open *a*",
    "para\nsame para\n\nother\n***\n## Title ##\nafter",
    "- a\n- b\n\n  more of b\n  ```\n  code\n\n  x\n  ```\n- c\n  1. d\n  2. e\n\nend",
    "3) x\n4) y\n* z",
    "1986. That was long ago.\nIn\n1987. too",
    "> quoted\n> - list\n>\n> more\n\nfree",
    "`` a ` b `` `un\nclosed` `c` ``` d",
    "~~~~ js title\n~~~\n```\n~~~~~\nx",
    "    ".join(["```\n", "indented\n", "never closed"]),
    "\\*no\\* \\`no\\` 1\\. a\\_b",
    '[a *b*](https://x.example/(y)?q=1 "t") [no](x y) [1] [2]: z ![pic](https://x.example/p.png)',
    "<script>alert(1)</script> <b>x</b> &amp",
    "a | b\n--|:-:\n1 | `2`\n3\n\nafter",
    "",
    "\n\n",
]
HOSTILE = {
    "javascript": "[a](javascript:alert(1)) [b](JavaScript:x) [c](<javascript:x>) [d](data:text/html,x) [e](/v1)",
    "file": "[a](file:///etc/passwd) [b](//evil.example) [c](\x01javascript:x) [d](vbscript:x) <javascript:x>",
    "html": "<script>document.title='x'</script><img src=x onerror=alert(1)><a href='/x'>e</a>",
    "attribute": '[a](https://x.example/"onclick="alert(1)) [b](https://x.example/ "t\\" onclick=x")',
    "language": '```"><script>x</script>\ncode\n```',
}
SLOW = {
    "asterisks": "*" * 10_000,
    "asterisks with words": "*a " * 10_000,
    "nested": "*a **b " * 5_000 + "b** a*" * 5_000,
    "brackets": "[" * 10_000 + "](" * 10_000,
    "links": "[a](https://x.example/(" * 5_000,
    "addresses": "https://x" + "." * 10_000 + "x " + "https://" * 5_000,
    "backticks": " ".join("`" * (1 + i % 140) for i in range(5_000)),
    "fences": "```" + "a" * 10_000 + "`\n" + "~" * 10_000 + "`",
    "quotes": ">" * 10_000,
    "lists": "- " * 10_000 + "x",
    "deep list": "".join(" " * i + "- a\n" for i in range(300)),
    "rule": "-" + " " * 10_000 + "- x",
    "heading": "# " + " " * 10_000 + "#" * 10_000 + " x",
    "columns": "a | b\n" + " " * 10_000 + "|" + "-|" * 10_000 + " x",
    "cells": "|" * 10_000 + "\n|-|\n" + "|\\" * 10_000,
    "underscores": "_a_" * 10_000,
    "strikes": "~~a" * 10_001,
    "spaces": " " * 10_000 + "x",
    "dollars": "$a " * 10_000,
    "formulas": "$a$ " * 5_000,
    "parentheses of formulas": "\\(" * 10_000,
    "brackets of formulas": "\\[\n" * 10_000,
    "deep formula": "$" + "\\frac{" * 300 + "$ x",
    "wide formula": "$" + "\\begin{matrix}" * 130 + "$ x",
    "quotes in code": "```\n" + "\"'" * 10_000,
    "comments in code": "```js\n" + "/*" * 20_000,
    "words in code": "```py\n" + "if 1 " * 12_000,
    "lines in code": "```py\n" + "'''\n" * 15_000,
    "tasks": "- [ ] a\n" * 5_000,
}


ELEMENTS = """text => {
    const into = document.createElement('div')
    drawMarkdown(into, text)
    return [...into.querySelectorAll('*')].map(each => [each.localName, each.getAttributeNames(), each.href])
}"""
ALLOWED = {
    "p": set(),
    "code": set(),
    "small": set(),
    "pre": {"tabindex"},
    "div": {"class"},
    "button": {"type", "aria-label"},
    "a": {"href", "target", "rel", "title"},
}


class Outline(HTMLParser):
    """Elements and texts of HTML, without intended differences between the two renderers."""

    # The page makes a paragraph of a list item even without a blank line, and it wraps tables.
    IGNORED = frozenset({"p", "div", "thead", "tbody", "span", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.found = ""
        self._in_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_code = self._in_code or tag == "pre"
        if tag == "img":
            self.found += f"<a {given['src']}>{given['alt']}</a>"
        elif tag not in self.IGNORED:
            detail = (
                given.get("href") or given.get("start") or (given.get("style") or "").replace("text-align:left", "")
            )
            kind = "h" if re.fullmatch("h[1-6]", tag) else tag
            self.found += f"<{kind} {detail.replace(' ', '').rstrip(';')}>"

    def handle_endtag(self, tag: str) -> None:
        self._in_code = self._in_code and tag != "pre"
        if tag == "p":
            self.found += self._spaced(" ")
        if tag not in self.IGNORED | {"hr", "img"}:
            self.found += re.sub("h[1-6]", "h", f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.found += data if self._in_code else self._spaced(re.sub(r"\s+", " ", data))

    def _spaced(self, text: str) -> str:
        return text.lstrip() if self.found.endswith(" ") else text


def outline(html: str) -> list[str]:
    """Returns elements and texts, one per line."""
    parser = Outline()
    parser.feed(html)
    found = parser.found.replace(" start=1", "").replace("<ol 1>", "<ol >")
    return [part.strip() for part in re.split(r"(<[^>]*>)", found) if part.strip()]


def oracle(text: str) -> list[str]:
    """Returns markdown-it's elements and texts, with addresses as links."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(["code", "lheading"])
    return outline(parser.render(re.sub(r"(?<![(<])(https://[\w./]+\w)", r"<\1>", text)))


def drawn(it: Any, text: str) -> str:
    """Returns the HTML that the page draws."""
    code = """text => {
        const into = document.createElement('div')
        drawMarkdown(into, text)
        for (const head of into.querySelectorAll('.source .row')) head.remove()
        return into.innerHTML
    }"""
    return str(it.page.evaluate(code, text))


@pytest.mark.long
def test_ply_6_answers_are_drawn_as_another_library_draws_them(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        for text in SAME_AS_ORACLE:
            assert outline(drawn(it, text)) == oracle(text), text
    assert oracle("*a*") != oracle("a")


@pytest.mark.long
def test_ply_6_a_growing_answer_is_drawn_as_the_whole_one(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        for text in SAME_AS_ORACLE:
            grown, whole = grown_and_whole(it, text)
            assert grown == whole, text


def test_ply_6_nothing_hostile_becomes_an_element_or_a_link(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        for name, text in HOSTILE.items():
            for kind, attributes, href in it.page.evaluate(ELEMENTS, text):
                assert kind in ALLOWED, (name, kind)
                assert set(attributes) <= ALLOWED[kind], (name, attributes)
                assert not href or href.startswith("https://x.example/"), (name, href)
        link = it.page.evaluate("inline('[a](https://x.example/)').querySelector('a').outerHTML")
        assert 'target="_blank" rel="noopener noreferrer"' in link
        assert it.console == []


@pytest.mark.long
def test_ply_6_no_answer_freezes_the_page(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        session = it.page.context.new_cdp_session(it.page)
        session.send("Performance.enable")

        def thread_seconds() -> float:
            """Returns the processor time of the page's main thread."""
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(float(metric["value"]) for metric in metrics if metric["name"] == "ThreadTime")

        for name, text in SLOW.items():
            before = thread_seconds()
            html = drawn(it, text)
            spent = thread_seconds() - before
            assert 0 < spent < SHORT_SECONDS, (name, spent)
            assert html, name


@pytest.mark.long
def test_ply_6_an_answer_is_formatted_and_its_text_can_be_shown_and_copied(
    formatted: HttpServed, sample: str, visit: Any
) -> None:
    with visit(formatted) as it:
        it.ask("Hi")
        reply = it.page.locator(".reply")
        expect(reply.locator("h2")).to_have_text("Sorting in Python")
        expect(reply.locator("pre")).to_have_text("def biggest(n):\n    return sorted(n)[-1]  # <b>")
        expect(reply.locator("td")).to_have_text(["a_b", "1"])
        it.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        reply.get_by_role("button", name="Copy this code").click()
        expect(reply.get_by_text("Copied")).to_be_visible()
        assert it.page.evaluate("navigator.clipboard.readText()") == reply.locator("pre").text_content()
        it.button("Plain text").click()
        assert it.page.locator(".reply").text_content() == sample
        it.button("Tokens").click()
        assert it.page.locator(".reply").text_content() == sample
        # Later answers keep the choice of plain text.
        it.button("Plain text").click()
        it.button("New chat").click()
        it.ask("Hi")
        assert it.page.locator(".reply").text_content() == sample
        it.button("Plain text").click()
        expect(reply.locator("h2")).to_be_visible()
        assert (it.console, it.left_origin) == ([], [])


# Language, source, and its coloured parts in order: kind and text.
SOURCES = [
    (
        "python",
        'def f(x=1.5e3):  # no "string"\n    """Doc\n    def"""\n    return \'it\\\'s\' if x',
        'word def|number 1.5e3|comment # no "string"|string """Doc\n    def"""|word return|string \'it\\\'s\'|word if',
    ),
    (
        "js",
        "const a = `b ${c}` // d\n/* e\n*/ let f",
        "word const|string `b ${c}`|comment // d|comment /* e\n*/|word let",
    ),
    ("rust", "fn f<'a>(x: &'a str) { 'x'; 0xFF_u8 }", "word fn|word str|string 'x'|number 0xFF_u8"),
    ("c++", 'int main() { return "\\"//"[0]; }', 'word int|word return|string "\\"//"|number 0'),
    (
        "sql",
        "SELECT 'a--b' FROM t -- where\nWHERE 1",
        "word SELECT|string 'a--b'|word FROM|comment -- where|word WHERE|number 1",
    ),
    ("json", '{"a": [1, true]}', 'string "a"|number 1|word true'),
    ("bash", 'if [ -f "$a" ]; then # b\n  echo $#', 'word if|string "$a"|word then|comment # b|word echo'),
    ("html", '<!-- <b> --><a href="x">5</a>', 'comment <!-- <b> -->|word <a|string "x"|word >|word </a|word >'),
    ("go", "func f() { x := '\\n' }", "word func|string '\\n'"),
    ("java", "public int x = 1; // y", "word public|word int|number 1|comment // y"),
    ("zig", 'x = "a" // b\ndon\'t if 3', 'string "a"|comment // b|number 3'),
    ("", "see https://x.example/#a", ""),
    ("text", 'x "y" 3', ""),
    ("constructor", "if 3", "number 3"),
]
PAINT = """([language, source, isGrown]) => {
    const code = document.createElement('code')
    for (let n = isGrown ? 0 : source.length; n <= source.length; n++) colour(code, source.slice(0, n), language)
    const parts = [...code.children].map(each => `${each.className} ${each.textContent}`)
    return [code.textContent, parts.join('|'), code.innerHTML]
}"""


@pytest.mark.few(3)
@pytest.mark.parametrize(("language", "source", "wanted"), SOURCES, ids=[each[0] or "none" for each in SOURCES])
def test_ply_10_code_has_colours(http: HttpServed, visit: Any, language: str, source: str, wanted: str) -> None:
    with visit(http) as it:
        text, found, whole = it.page.evaluate(PAINT, [language, source, False])
        assert (text, found) == (source, wanted)
        # Character by character, as an answer comes.
        assert it.page.evaluate(PAINT, [language, source, True]) == [text, found, whole]
        assert it.console == []


@pytest.mark.long
def test_ply_10_while_code_grows_only_its_last_line_is_drawn_again(http: HttpServed, visit: Any) -> None:
    code = """() => {
        const code = document.createElement('code'), line = 'x = 1  # y\\n'
        colour(code, line.repeat(1000), 'python')
        const nodes = new Set(code.childNodes)
        colour(code, line.repeat(1000) + 'z', 'python')
        return [nodes.size, [...code.childNodes].filter(each => nodes.has(each)).length]
    }"""
    with visit(http) as it:
        before, kept = it.page.evaluate(code)
        assert before > 3000 and before - kept <= 2
