"""A dialect is the markup in which a family of models writes reasoning and tool calls, described as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from imp_service.text.channels.pattern import MAX_BLANKS, Pattern, newline_forms

# The JSON object of the arguments follows a head of JSON. The head ends where the object begins.
OBJECT = "{"


@dataclass(frozen=True, slots=True)
class Marker:
    """A text that is markup and not output, with the line breaks that belong to it."""

    text: str
    # The most line breaks before and after the text that belong to the marker.
    before: int = 0
    after: int = 0

    @property
    def forms(self) -> tuple[str, ...]:
        """The marker with each number of line breaks before it."""
        return newline_forms(self.text, self.before)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The markers of reasoning. It can begin only at the start of the output, or in the prompt."""

    begin: Marker
    end: Marker


@dataclass(frozen=True, slots=True)
class Parameters:
    """The markup of arguments that are parameters with values as plain text. Without it arguments are a JSON object."""

    # The pattern before a value, with $key.
    begin: str
    end: Marker
    # The pattern after the last parameter.
    close: str
    # The most line breaks before a value that are markup.
    after_begin: int = 1


@dataclass(frozen=True, slots=True)
class CallForm:
    """One way to write calls: begin, opening, head, arguments, a tail; then between and the next head, or end.

    All but `begin` are patterns: see pattern.py.
    """

    # None: a call has no marker, and the whole output is calls. Such a call must name a function of the request.
    begin: Marker | None
    head: str
    # Occurs once, before the first head.
    opening: str = ""
    # One of these follows the arguments. A constraint forces the first.
    tails: tuple[str, ...] = ()
    # The pattern between two calls after one `begin`. Empty: each call has its own `begin`.
    between: str = ""
    end: str = ""
    # The most line breaks after `end` that belong to it.
    after_end: int = 0
    parameters: Parameters | None = None

    @property
    def first_pattern(self) -> Pattern:
        """The pattern from `begin` to the first byte of the first call's arguments."""
        return self._pattern(self.opening + self.head)

    @property
    def next_pattern(self) -> Pattern:
        """The pattern before the arguments of the next call after the same `begin`."""
        return self._pattern(self.between + self.head)

    def _pattern(self, source: str) -> Pattern:
        return Pattern(source) if self.parameters else Pattern(source + OBJECT, n_ahead=len(OBJECT))

    def patterns(self) -> Iterator[Pattern]:
        """Every pattern whose bytes are held back until it matches."""
        yield self.first_pattern
        if self.between:
            yield self.next_pattern
        yield from (Pattern(source) for source in (*self.tails, self.end) if source)
        if self.parameters:
            yield Pattern(self.parameters.begin)
            yield Pattern(self.parameters.close)


@dataclass(frozen=True, slots=True)
class CallIdShape:
    """The form of a call's id: a prefix, then letters and digits."""

    prefix: str = "call_"
    length: int = 24


@dataclass(frozen=True, slots=True)
class Dialect:
    """The markup of a family of models."""

    name: str
    reasoning: Reasoning | None = None
    # A constraint forces the first form.
    forms: tuple[CallForm, ...] = ()
    ids: CallIdShape = CallIdShape()

    def preferring(self, form: CallForm) -> Dialect:
        """A copy with this form as the first."""
        return replace(self, forms=(form, *(each for each in self.forms if each is not form)))

    def frames_with(self, token: bytes) -> bool:
        """Whether a token's text is part of the framing, and so not of the output."""
        return any(token in text.encode() for text in self._framing())

    def _framing(self) -> Iterator[str]:
        if self.reasoning:
            yield from (self.reasoning.begin.text, self.reasoning.end.text)
        for form in self.forms:
            yield form.begin.text if form.begin else ""
            yield form.parameters.end.text if form.parameters else ""
            yield from (pattern.source for pattern in form.patterns())

    @property
    def longest_marker(self) -> int:
        """The most bytes that are held back until the following bytes are known."""
        markers = [self.reasoning.begin, self.reasoning.end] if self.reasoning else []
        lengths = [len(each.text) + each.before + MAX_BLANKS for each in markers]
        for form in self.forms:
            n_begin = len(form.begin.text) + form.begin.before if form.begin else 0
            lengths += [n_begin + pattern.most_bytes for pattern in form.patterns()]
        return max(lengths, default=0)
