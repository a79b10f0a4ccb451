"""Splits a streamed output into the pieces of a dialect. Text that only looks like a call is content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from imp_service.text.channels.dialect import CallForm, Dialect, Marker
from imp_service.text.channels.json_object import ObjectScanner
from imp_service.text.channels.notation import NotationReader
from imp_service.text.channels.pattern import Pattern
from imp_service.text.channels.pattern_choice import Match, PatternChoice, PatternOption
from imp_service.text.channels.pieces import Piece, PieceKind, merged
from imp_service.text.stop_matcher import StopMatcher, StopStrings

Action = Callable[[], None]


class ChannelSplitter:
    """Parses one output. The result does not depend on how the bytes are split into calls of feed().

    A state machine: the reader of a state consumes bytes and returns the rest for the next state's reader. It holds
    back at most `dialect.longest_marker` bytes until their meaning is known.
    """

    def __init__(self, dialect: Dialect, *, in_reasoning: bool, names: frozenset[str] | None) -> None:
        """`in_reasoning`: the prompt has opened the reasoning.

        `names` are the functions of the request. None: any. Empty: nothing is a call.
        """
        self._dialect = dialect
        self._names = names
        self._forms = dialect.forms if names is None or names else ()
        self._out: list[Piece] = []
        self._reader: Callable[[bytes], bytes]
        # The bytes that are held back, and their kind if none follow.
        self._held = b""
        self._held_kind = PieceKind.CONTENT
        self._matcher: StopMatcher
        self._choice: PatternChoice | None = None
        self._otherwise: Action
        self._n_newlines = 0
        self._then: Action
        self._form: CallForm
        self._scanner: ObjectScanner
        self._notated: NotationReader
        if in_reasoning and dialect.reasoning is not None:
            self._skip(dialect.reasoning.begin.after, self._begin_reasoning)
        else:
            self._begin_output()

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that these bytes complete."""
        while data:
            data = self._reader(data)
        return self._taken()

    def finish(self, *, is_cut: bool = False, is_call: bool = False) -> list[Piece]:
        """The bytes that were held back. Call it at the end. A call with a complete name is reported.

        `is_cut`: a limit ended the output, so what may begin a call is taken for one. `is_call`: the output can be
        nothing else.
        """
        named = None if self._choice is None else self._choice.named()
        if named is not None:
            self._out += named
            self._emit(PieceKind.HEAD_END)
        else:
            begins_call = is_cut and self._held_kind is PieceKind.CONTENT and (is_call or self._holds_call)
            self._emit(PieceKind.MARKER if begins_call else self._held_kind, self._waiting)
        self._held, self._choice = b"", None
        return self._taken()

    @property
    def n_held(self) -> int:
        """The number of bytes that are held back."""
        return len(self._waiting)

    @property
    def _holds_call(self) -> bool:
        """Whether the bytes that are held back begin with the marker of a call, or with a part of it."""
        if self._choice is not None and self._choice.marker:
            return True
        begins = [text.encode() for form in self._forms if form.begin for text in form.begin.forms]
        return bool(self._waiting.strip(b"\n")) and any(begin.startswith(self._waiting) for begin in begins)

    @property
    def _waiting(self) -> bytes:
        return self._held if self._choice is None else self._choice.held

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return merged(out)

    def _emit(self, kind: PieceKind, data: bytes = b"") -> None:
        self._out.append(Piece(kind, data))

    # States: the beginning of the output, content, reasoning.

    def _begin_output(self) -> None:
        options = [
            self._head(form, first) for form in self._forms if form.begin is None for first in form.first_patterns
        ]
        if self._dialect.reasoning:
            options.append(
                PatternOption(Pattern(" " + self._dialect.reasoning.begin.text), self._after_reasoning_begin)
            )
        self._try(options, self._begin_content, PieceKind.CONTENT)

    def _begin_content(self) -> None:
        self._find(_begins(self._dialect, self._forms), PieceKind.CONTENT, self._end_content)

    def _end_content(self, marker: bytes) -> None:
        reasoning = self._dialect.reasoning
        if reasoning and reasoning.recurs and _is(reasoning.begin, marker):
            self._emit(PieceKind.MARKER, marker)
            self._after_reasoning_begin()
        elif (wrapper := next((each for each in self._dialect.wrappers if _is(each, marker)), None)) is not None:
            self._end_section(marker, wrapper, self._begin_output)
        else:
            self._begin_call(marker)

    def _after_reasoning_begin(self) -> None:
        assert self._dialect.reasoning is not None  # narrows
        self._skip(self._dialect.reasoning.begin.after, self._begin_reasoning)

    def _begin_reasoning(self) -> None:
        assert self._dialect.reasoning is not None  # narrows
        end = self._dialect.reasoning.end
        self._find(end.forms, PieceKind.REASONING, lambda marker: self._end_section(marker, end, self._begin_content))

    # States: a call.

    def _begin_call(self, marker: bytes) -> None:
        begun = [form for form in self._forms if form.begin and _is(form.begin, marker)]
        options = [self._head(form, first) for form in begun for first in form.first_patterns]
        self._try(options, self._begin_content, PieceKind.CONTENT, marker)

    def _head(self, form: CallForm, pattern: Pattern) -> PatternOption:
        return PatternOption(pattern, lambda: self._begin_arguments(form), self._names if form.begin is None else None)

    def _begin_arguments(self, form: CallForm) -> None:
        self._form = form
        self._emit(PieceKind.HEAD_END)
        if form.parameters:
            self._between_parameters()
        elif form.notation:
            self._notated = NotationReader(form.notation)
            self._reader = self._read_notated
        else:
            self._scanner = ObjectScanner()
            self._reader = self._read_object

    def _read_object(self, data: bytes) -> bytes:
        end = self._scanner.feed(data)
        self._emit(PieceKind.ARGUMENTS, data[:end])
        if end is None:
            return b""
        self._end_call()
        return data[end:]

    def _read_notated(self, data: bytes) -> bytes:
        end = self._notated.feed(data)
        self._notated.take()
        self._emit(PieceKind.NOTATED, data[:end])
        if end is None:
            return b""
        self._end_call()
        return data[end:]

    def _between_parameters(self) -> None:
        written = self._form.parameters
        assert written is not None  # narrows
        begin = PatternOption(Pattern(written.begin), lambda: self._skip(written.after_begin, self._begin_value))
        self._try([begin, PatternOption(Pattern(written.close), self._end_call)], self._end_call, PieceKind.MARKER)

    def _begin_value(self) -> None:
        assert self._form.parameters is not None  # narrows
        end = self._form.parameters.end
        self._find(end.forms, PieceKind.VALUE, lambda marker: self._end_section(marker, end, self._end_value))

    def _end_value(self) -> None:
        self._emit(PieceKind.VALUE_END)
        self._between_parameters()

    def _end_call(self) -> None:
        self._emit(PieceKind.CALL_END)
        tails = [PatternOption(Pattern(tail), self._after_tail) for tail in self._form.tails]
        self._try(tails, self._after_tail, PieceKind.MARKER)

    def _after_tail(self) -> None:
        form = self._form
        options = [self._head(form, following) for following in form.next_patterns]
        if form.end:
            options.append(PatternOption(Pattern(form.end), lambda: self._skip(form.after_end, self._begin_content)))
        self._try(options, self._begin_content, PieceKind.MARKER)

    # Readers that stop at a marker.

    def _find(self, markers: tuple[str, ...], kind: PieceKind, then: Callable[[bytes], None]) -> None:
        """Emits bytes as this kind up to the next marker."""
        self._matcher = StopMatcher(_strings(markers))
        # A part of the marker after a value does not belong to the value.
        self._held_kind = PieceKind.MARKER if kind is PieceKind.VALUE else kind
        self._reader = lambda data: self._read_to_marker(data, kind, then)

    def _read_to_marker(self, data: bytes, kind: PieceKind, then: Callable[[bytes], None]) -> bytes:
        n_before = self._matcher.n_bytes - len(self._held)
        match = self._matcher.feed(data, may_end=True)
        waiting, self._held = self._held + data, b""
        if match is None:
            cut = len(waiting) - self._matcher.n_held
            self._emit(kind, waiting[:cut])
            self._held = waiting[cut:]
            return b""
        start, end = match.start - n_before, match.end - n_before
        self._emit(kind, waiting[:start])
        then(waiting[start:end])
        return waiting[end:]

    def _end_section(self, marker: bytes, written: Marker, then: Action) -> None:
        self._emit(PieceKind.MARKER, marker)
        self._skip(written.after, then)

    # Readers of line breaks, which belong to the framing.

    def _skip(self, most: int, then: Action) -> None:
        self._n_newlines, self._then = most, then
        self._reader = self._read_newlines

    def _read_newlines(self, data: bytes) -> bytes:
        n = 0
        while n < min(len(data), self._n_newlines) and data[n : n + 1] == b"\n":
            n += 1
        self._emit(PieceKind.MARKER, data[:n])
        self._n_newlines -= n
        if n < len(data):
            self._then()
        return data[n:]

    # Readers of patterns.

    def _try(
        self, options: Sequence[PatternOption], otherwise: Action, held_kind: PieceKind, marker: bytes = b""
    ) -> None:
        """Tries to match one of the options. `marker` was read before them and is content if none matches."""
        if not options:
            otherwise()
            return
        self._choice, self._otherwise, self._held_kind = PatternChoice(options, marker), otherwise, held_kind
        self._reader = self._read_pattern

    def _read_pattern(self, data: bytes) -> bytes:
        choice = self._choice
        assert choice is not None  # narrows
        outcome = choice.feed(data)
        if outcome is None:
            return b""
        self._choice = None
        if isinstance(outcome, Match):
            self._out += outcome.pieces
            outcome.option.action()
        else:
            self._emit(PieceKind.CONTENT, choice.marker)
            self._otherwise()
        return outcome.rest


@lru_cache(maxsize=256)
def _strings(forms: tuple[str, ...]) -> StopStrings:
    return StopStrings(forms)


def _is(marker: Marker, found: bytes) -> bool:
    return found.endswith(marker.text.encode())


def _begins(dialect: Dialect, forms: Sequence[CallForm]) -> tuple[str, ...]:
    """The markers that end content."""
    markers = [form.begin for form in forms if form.begin]
    if dialect.reasoning and dialect.reasoning.recurs:
        markers.append(dialect.reasoning.begin)
    return tuple(dict.fromkeys(text for marker in (*markers, *dialect.wrappers) for text in marker.forms))
