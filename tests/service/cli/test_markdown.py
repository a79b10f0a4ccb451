"""Markdown on a terminal: the final picture does not depend on how the text was divided."""

from __future__ import annotations

import io
import random
import re

import pytest

from imp_service.cli import markdown
from imp_service.cli.markdown import MarkdownWriter

_SEQUENCE = re.compile(r"\x1b\[(\d*)([AJm]|\d*m)|\x1b\[[\d;]*m")


class Screen(io.StringIO):
    """A stream that acts as a terminal. Fails at a control sequence that the writer of answers does not need."""

    encoding = "utf-8"

    def __init__(self, n_columns: int, n_rows: int) -> None:
        super().__init__()
        self.n_columns, self.n_rows = n_columns, n_rows
        self.lines = [""]
        self.row = self.column = 0
        self.n_bytes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.n_bytes += len(text.encode())
        rest = text
        while rest:
            if rest[0] == "\x1b":
                found = _SEQUENCE.match(rest)
                assert found, f"an unexpected sequence: {rest[:12]!r}"
                self._control(found)
                rest = rest[found.end() :]
                continue
            self._show(rest[0])
            rest = rest[1:]
        return len(text)

    def _control(self, found: re.Match[str]) -> None:
        if found[2] == "A":
            self.row -= int(found[1])
            assert len(self.lines) - self.n_rows <= self.row >= 0, "above the screen"
        elif found[2] == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]

    def _show(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n" or self.column == self.n_columns:
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.lines):
                self.lines.append("")
        if character not in "\r\n":
            assert character.isprintable(), f"a control character: {character!r}"
            self.lines[self.row] = self.lines[self.row][: self.column].ljust(self.column) + character
            self.column += 1

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


ANSWER = """<think>
First the head,
then the rest.
</think>

# Sorting

Use `sorted` for a **new list** of `List<String>`, or List<int>.
The second line.

```python
def by_length(words):

    return sorted(words, key=len)
```

- one
- two with *stress*
  - below

1. first

| name | value |
|------|------:|
| a    |     1 |

A [link](https://example.com/a) ends it.
"""
SHOWN = """First the head,
then the rest.

Sorting

Use sorted for a new list of List<String>, or List<int>.
The second line.

```python
def by_length(words):

    return sorted(words, key=len)
```

 • one
 • two with stress
    • below

 1 first

 name  value
 ───────────
 a         1

A link (https://example.com/a) ends it.
"""


@pytest.fixture(autouse=True)
def _every_write_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws at every write, however fast this machine is."""
    monkeypatch.setattr(markdown, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(markdown, "SHARE", float("inf"))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    shown = Screen(60, 20)
    resize(shown, monkeypatch, 60)
    monkeypatch.setenv("TERM", "xterm")
    return shown


def resize(screen: Screen, monkeypatch: pytest.MonkeyPatch, n_columns: int) -> None:
    screen.n_columns = n_columns
    monkeypatch.setenv("COLUMNS", str(n_columns))
    monkeypatch.setenv("LINES", str(screen.n_rows))


def written(screen: Screen, *parts: str) -> str:
    writer = MarkdownWriter(screen)
    for part in parts:
        writer.write(part)
    writer.end_line()
    return screen.shown


def test_cmd_13_markdown_is_rendered(screen: Screen) -> None:
    assert written(screen, ANSWER) == SHOWN


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_cmd_13_the_end_does_not_depend_on_the_parts(screen: Screen, seed: int) -> None:
    draw = random.Random(seed)
    parts, rest = [], ANSWER
    while rest:
        n = draw.randint(1, 1 + 5 * seed)
        parts.append(rest[:n])
        rest = rest[n:]
    assert written(screen, *parts) == SHOWN


@pytest.mark.long
def test_cmd_13_what_does_not_change_is_not_written_again(screen: Screen) -> None:
    """A terminal that gets few bytes does not flicker: each character is written a few times, not once per update."""
    answer = "word " * 400
    written(screen, *(f"{word} " for word in answer.split()))
    assert screen.n_bytes < 60 * len(answer)


@pytest.mark.long
def test_cmd_13_a_block_higher_than_the_terminal_is_whole(screen: Screen) -> None:
    items = [f"- item {i} of a list\n" for i in range(100)]
    assert written(screen, *items).splitlines() == [f" • item {i} of a list" for i in range(100)]


@pytest.mark.long
def test_cmd_13_what_has_left_the_screen_is_not_drawn_again(screen: Screen) -> None:
    """Each row makes the whole table wider."""
    rows = [f"| row {i:02} | {'x' * i} |\n" for i in range(40)]
    shown = written(screen, "| a | b |\n|---|---|\n", *rows)
    assert [line.split()[1] for line in shown.splitlines() if "row" in line] == [f"{i:02}" for i in range(40)]


@pytest.mark.long
@pytest.mark.parametrize("n_columns", [30, 100])
def test_cmd_13_a_resize_loses_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch, n_columns: int) -> None:
    writer = MarkdownWriter(screen)
    for i in range(60):
        if i == 30:
            resize(screen, monkeypatch, n_columns)
        writer.write(f"- item {i} that has some more words than fit in thirty\n")
    writer.write("\nThe end.\n")
    writer.end_line()
    assert [line.split()[2] for line in screen.shown.splitlines() if "item" in line] == [str(i) for i in range(60)]
    assert screen.shown.endswith("\n\nThe end.\n")


HOSTILE = {
    "\x1b[31mred\x1b]0;title\x07": "\\x1b[31mred\\x1b]0;title\\x07",
    "```\n\x1b[2J\n```": "```\n\\x1b[2J\n```",
    "<think>\x9b1A</think>": "\\x9b1A",
    "a&#27;b&#13;c": "a�b\\x0dc",
    "[a](http://b/\x1b]8;;c)": "a (http://b/%5Cx1b%5D8;;c)",
    "a\rb": "a\\x0db",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_cmd_13_no_control_character_of_a_model_reaches_the_terminal(screen: Screen, text: str, shown: str) -> None:
    assert written(screen, text).rstrip("\n") == shown


def test_cmd_13_html_and_line_ends_stay(screen: Screen) -> None:
    assert written(screen, "<b>bold</b>\nsecond") == "<b>bold</b>\nsecond\n"


def test_cmd_13_an_answer_that_is_cut_shows_what_came(screen: Screen) -> None:
    for text, shown in (("<thi", "<thi"), ("<think>why", "why"), ("```\nx = 1", "```\nx = 1\n```"), ("a **b", "a **b")):
        assert written(screen, text).splitlines()[-len(shown.splitlines()) :] == shown.splitlines()
