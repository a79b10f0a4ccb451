"""Draws an answer of the page as it grows, character by character, and all at once."""

from __future__ import annotations

from typing import Any

BOTH = """text => {
    const [grown, whole] = [document.createElement('div'), document.createElement('div')]
    for (let n = 0; n <= text.length; n++) drawMarkdown(grown, text.slice(0, n))
    drawMarkdown(whole, text)
    return [grown.innerHTML, whole.innerHTML]
}"""


def grown_and_whole(it: Any, text: str) -> tuple[str, str]:
    """Returns the HTML of both."""
    grown, whole = it.page.evaluate(BOTH, text)
    return grown, whole
