"""Renders a model's Markdown on a terminal while it arrives."""

import re
import time
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, TextIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from imp_service.cli.terminal import VISIBLE

# Rendering takes at most this part of the time, so that it does not slow down a model in the same process.
SHARE = 0.2
SHORTEST_SECONDS = 0.05
CODE_THEME = "ansi_dark"  # the terminal's own colours
# Rich gives code a black background, which a light terminal does not have.
THEME = Theme({"markdown.code": "cyan", "markdown.code_block": "none"})
REASONING = ("<think>", "</think>")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class _Heading(Heading):
    """Begins at the left, as the text does."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _CodeBlock(CodeBlock):
    """Code without padding, so that it can be copied, between its fences."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name = "" if self.lexer_name == "text" else self.lexer_name
        yield Text(f"```{name}", style="dim")
        code = str(self.text).rstrip("\n")
        yield Syntax(code, self.lexer_name, theme=self.theme, background_color="default", word_wrap=True)
        yield Text("```", style="dim")


class _Blocks(Markdown):
    """Markdown from tokens that are already there."""

    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading, "fence": _CodeBlock, "code_block": _CodeBlock}

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        self.parsed = tokens


class _Block(NamedTuple):
    start: int  # in the source
    content: Markdown | Text
    is_reasoning: bool = False


class MarkdownWriter:
    """Writes an answer block by block. The last block is drawn again as it grows, where it differs from before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream, theme=THEME, highlight=False, markup=False, emoji=False)
        # A tag may be a type as List<String>: shown, as all HTML is.
        self._parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self._begin()

    def _begin(self) -> None:
        self._source = ""  # from the start of the block that may grow
        self._drawn: list[str] = []  # the lines of that block on the terminal
        self._settled: _Block | None = None  # the block before it
        self._is_reasoning: bool | None = None  # unknown before the first characters
        # The width at which that block is drawn. After a resize, the lines above it stay as they were drawn.
        self._width = self._console.width
        self._draws_at = 0.0

    def write(self, text: str) -> None:
        self._source += text.translate(VISIBLE)
        began = time.monotonic()
        if began >= self._draws_at and self._source:
            self._draw(is_whole=False)
            ended = time.monotonic()
            self._draws_at = ended + max(SHORTEST_SECONDS, (ended - began) / SHARE)

    def end_line(self) -> None:
        """Draws what is left. Whatever is written next begins another answer."""
        self._draw(is_whole=True)
        self._begin()

    def _draw(self, *, is_whole: bool) -> None:
        if not self._find_reasoning(is_whole):
            return
        blocks = list(self._blocks())
        lines: list[str] = []
        last, n_settled, width = self._settled, 0, self._width
        for block in blocks:
            n_settled = len(lines)
            if last is not None and not (last.is_reasoning and block.is_reasoning):
                lines.append("")
            lines += self._render(block.content, width)
            last, width = block, self._console.width
        self._paint(lines)
        if len(blocks) > 1:
            self._settled, self._width = blocks[-2], width
            self._is_reasoning = blocks[-1].is_reasoning
            self._source = self._source[blocks[-1].start :]
            lines = lines[n_settled:]
        self._drawn = lines

    def _find_reasoning(self, is_whole: bool) -> bool:
        """Whether it is known that the answer begins with reasoning, or does not."""
        if self._is_reasoning is None:
            opening, begun = REASONING[0], self._source.lstrip()
            if not is_whole and opening.startswith(begun):
                return False
            self._is_reasoning = begun.startswith(opening)
            self._source = begun.removeprefix(opening)
        return True

    def _blocks(self) -> Iterator[_Block]:
        start = 0
        if self._is_reasoning:
            inside, closing, _ = self._source.partition(REASONING[1])
            for line in inside.splitlines(keepends=True):
                if line.strip() or self._settled is not None or start:
                    yield _Block(start, Text(line.rstrip(), style="dim"), is_reasoning=True)
                start += len(line)
            if not closing:
                return
            start += len(closing)
        yield from self._markdown_blocks(start)

    def _markdown_blocks(self, start: int) -> Iterator[_Block]:
        source = self._source[start:]
        line_starts = [0]
        for line in source.split("\n"):
            line_starts.append(line_starts[-1] + len(line) + 1)
        tokens = self._parser.parse(source)
        begun = 0
        for i, token in enumerate(tokens):
            if token.level == 0 and token.nesting != 1:
                block = tokens[begun : i + 1]
                for each in block:
                    _make_fit(each)
                first = tokens[begun].map
                yield _Block(start + line_starts[first[0] if first else 0], _Blocks(block))
                begun = i + 1

    def _render(self, content: Markdown | Text, width: int) -> list[str]:
        """Its lines, without empty ones at the start and at the end."""
        with self._console.capture() as capture:
            self._console.print(content, width=width)
        lines = [line.rstrip(" ") for line in capture.get().splitlines()]
        filled = [i for i, line in enumerate(lines) if _STYLE.sub("", line).strip()]
        return lines[filled[0] : filled[-1] + 1] if filled else [""]

    def _paint(self, lines: list[str]) -> None:
        """Replaces the drawn lines from the first that differs, in one write."""
        width, height = self._console.size
        same = 0
        while same < min(len(lines), len(self._drawn)) and lines[same] == self._drawn[same]:
            same += 1
        # Lines that have scrolled off the top of the screen cannot be redrawn.
        up = sum(_n_rows(line, width) for line in self._drawn[same:])
        while up >= height:
            up -= _n_rows(self._drawn[same], width)
            same += 1
        if up or len(lines) > same:
            back = f"\x1b[{up}A\r\x1b[J" if up else ""
            self._stream.write(back + "".join(f"{line}\n" for line in lines[same:]))
            self._stream.flush()


def _n_rows(line: str, width: int) -> int:
    return max(1, -(-_n_cells(line) // max(1, width)))


def _n_cells(line: str) -> int:
    return cell_len(_STYLE.sub("", line))


def _make_fit(token: Token) -> None:
    """No control characters, also from entities; a line of the model stays a line."""
    token.content = token.content.translate(VISIBLE)
    token.info = token.info.translate(VISIBLE)
    for child in token.children or ():
        child.content = child.content.translate(VISIBLE)
        if child.type == "softbreak":
            child.type = "hardbreak"
