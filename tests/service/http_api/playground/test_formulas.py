"""Formulas in LaTeX as MathML: what is drawn, and what stays as it was written."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from support.servers.http_served import HttpServed
from support.text.growing_markdown import grown_and_whole

# LaTeX -> its MathML, without attributes and without rows of one thing.
DRAWN = {
    "a+b": "<mi>a</mi><mo>+</mo><mi>b</mi>",
    "x_1^2": "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>",
    "x^{10}y^10": "<msup><mi>x</mi><mn>10</mn></msup><msup><mi>y</mi><mn>1</mn></msup><mn>0</mn>",
    r"\frac{1}{2}\frac34": "<mfrac><mn>1</mn><mn>2</mn></mfrac><mfrac><mn>3</mn><mn>4</mn></mfrac>",
    r"\sqrt{x}\sqrt[3]{y}": "<msqrt><mi>x</mi></msqrt><mroot><mi>y</mi><mn>3</mn></mroot>",
    r"\alpha\Omega\varphi\infty": "<mi>α</mi><mi>Ω</mi><mi>φ</mi><mi>∞</mi>",
    r"a\le b\neq c\in\mathbb{R}": "<mi>a</mi><mo>≤</mo><mi>b</mi><mo>≠</mo><mi>c</mi><mo>∈</mo><mi>ℝ</mi>",
    r"\sum_{k=1}^n": "<munderover><mo>∑</mo><mrow><mi>k</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>",
    r"\int_0^1 f": "<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>f</mi>",
    r"\lim_{x}f": "<munder><mo>lim</mo><mi>x</mi></munder><mi>f</mi>",
    r"\left(\frac{a}{b}\right)": "<mrow><mo>(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo>)</mo></mrow>",
    r"\left\{x\right.": "<mrow><mo>{</mo><mi>x</mi><mo></mo></mrow>",
    r"\vec{v}\hat y": "<mover><mi>v</mi><mo>→</mo></mover><mover><mi>y</mi><mo>^</mo></mover>",
    r"x \text{ if } y": "<mi>x</mi><mtext>&nbsp;if&nbsp;</mtext><mi>y</mi>",
    r"\sin x": "<mi>sin</mi><mo>\u2061</mo><mi>x</mi>",
    "f'(x)": "<msup><mi>f</mi><mo>′</mo></msup><mo>(</mo><mi>x</mi><mo>)</mo>",
    r"\binom{n}{k}": "<mrow><mo>(</mo><mfrac><mi>n</mi><mi>k</mi></mfrac><mo>)</mo></mrow>",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": (
        "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
        "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>"
    ),
    r"\begin{cases}1&x>0\\0\end{cases}": (
        "<mrow><mo>{</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mrow><mi>x</mi><mo>&gt;</mo><mn>0</mn></mrow></mtd></mtr>"
        "<mtr><mtd><mn>0</mn></mtd></mtr></mtable></mrow>"
    ),
    r"\mathbf{Ax}\mathcal{L}\mathrm{d}": "<mrow><mi>𝐀</mi><mi>𝐱</mi></mrow><mi>ℒ</mi><mi>d</mi>",
    r"5\%\,\$": "<mn>5</mn><mo>%</mo><mspace></mspace><mo>$</mo>",
    r"a-b\cdot 1.5": "<mi>a</mi><mo>−</mo><mi>b</mi><mo>⋅</mo><mn>1.5</mn>",
}
# No formulas that are known: they stay as they were written.
UNKNOWN = [
    r"\unknown{x}",
    r"\frac{1}",
    "{",
    "}",
    "a}",
    r"\left(x",
    r"\begin{tikzpicture}x\end{tikzpicture}",
    r"\begin{matrix}1\end{pmatrix}",
    "x^",
    "x_1_2",
    r"\constructor",
    r"\begin{constructor}x\end{constructor}",
    r"\left\constructor x\right)",
    r"\text{\unknown}",
    "&",
    "{" * 100 + "}" * 100,
]
OWN_LINES = [
    "$$x$$",
    "$$\nx\n$$",
    "\\[\nx\n\\]",
    "so\n\\[\nx\n\\]\nholds",
    "so $$x$$ holds",
    "- item\n\n  $$\n  x\n  $$",
    "\\[\n\nx\n\\]",
    "> $$x$$",
]
NO_FORMULA = [
    "costs $5 and $6",
    "US$5 or CA$6.50, $7-$8, $9/month",
    "from $5 million to $6 million$",
    "use $HOME/$USER and $PATH",
    "`$x$` and `\\(x\\)`",
    "an escaped \\$x\\$",
    "$ x $ and $x $",
    "$$",
    "\\[ never closed",
    "```\n$x$ \\[y\\]\n```",
]


def drawn(it: Any, text: str) -> str:
    """Returns the HTML that the page draws, without attributes."""
    code = "text => { const into = document.createElement('div'); drawMarkdown(into, text); return into.innerHTML }"
    return re.sub(r"<(\w+)[^>]*>", r"<\1>", str(it.page.evaluate(code, text)))


def test_ply_10_formulas_are_drawn(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        found = {source: drawn(it, f"a ${source}$.") for source in DRAWN}
        assert found == {source: f"<p>a <math>{wanted}</math>.</p>" for source, wanted in DRAWN.items()}
        assert it.console == []


@pytest.mark.long
def test_ply_10_what_is_not_known_stays_as_it_was_written(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        assert [source for source in UNKNOWN if it.page.evaluate("text => formula(text)", source) is not None] == []
        for source in UNKNOWN:
            text = f"so \\({source}\\) holds"
            assert it.page.evaluate("text => inline(text).textContent", text) == text


@pytest.mark.long
def test_ply_10_amounts_and_code_are_no_formulas(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        assert [text for text in NO_FORMULA if "<math" in drawn(it, text)] == []
        assert "<math>" in drawn(it, "pay $5x$ or $10 \\text{ kg}$ for $100$")


@pytest.mark.long
def test_ply_10_a_formula_may_have_lines_of_its_own(http: HttpServed, visit: Any) -> None:
    code = """text => {
        const into = document.createElement('div')
        drawMarkdown(into, text)
        return [...into.querySelectorAll('math')].map(each => each.getAttribute('display') + each.textContent)
    }"""
    with visit(http) as it:
        assert {text: it.page.evaluate(code, text) for text in OWN_LINES} == {text: ["blockx"] for text in OWN_LINES}


@pytest.mark.long
def test_ply_10_lines_that_look_like_a_list_belong_to_their_formula(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        found = drawn(it, "\\[\na\n+ b\n- c\n= 1986.\n\\]\nend")
        assert "<ul>" not in found and found.endswith("<p>end</p>")
        assert "<mi>a</mi><mo>+</mo><mi>b</mi><mo>−</mo><mi>c</mi><mo>=</mo>" in found


@pytest.mark.long
def test_ply_10_a_formula_that_grows_is_drawn_as_the_whole_one(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        for text in ("a $x_1$ *b*\n\n\\[\nx\n+ y\n\\]\nc", "\n".join(f"- ${source}$" for source in DRAWN), *NO_FORMULA):
            grown, whole = grown_and_whole(it, text)
            assert grown == whole


@pytest.mark.long
def test_ply_10_nothing_in_a_formula_becomes_html(http: HttpServed, visit: Any) -> None:
    hostile = "$<img src=x onerror=alert(1)>$ $\\text{<script>x</script>}$ \\(\\mathrm{<b>}\\)"
    code = "text => [...inline(text).querySelectorAll('*')].map(each => each.namespaceURI + ' ' + each.localName)"
    with visit(http) as it:
        kinds = it.page.evaluate(code, hostile)
        assert kinds and all(kind.startswith("http://www.w3.org/1998/Math/MathML m") for kind in kinds)
        assert it.console == []


@pytest.mark.long
def test_ply_10_a_formula_has_its_source_for_those_who_do_not_see_it(formatted: HttpServed, visit: Any) -> None:
    with visit(formatted, width=390) as it:
        it.ask("Hi")
        expect(it.page.locator("math").first).to_have_attribute("alttext", "n > 1")
        boxes = it.page.locator(".task input")
        assert [boxes.nth(i).is_checked() for i in range(2)] == [True, False]
        assert boxes.first.is_disabled()
