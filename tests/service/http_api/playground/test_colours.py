"""Colours in code: which parts of a source are comments, strings, numbers and words of its language."""

from __future__ import annotations

from typing import Any

import pytest

from support.http_served import HttpServed

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
