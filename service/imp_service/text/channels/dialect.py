"""A dialect is the markup in which a family of models writes reasoning and tool calls, described as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from imp_service.text.channels.notation import Notation
from imp_service.text.channels.pattern import BLANK, MAX_BLANKS, Pattern, newline_forms

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
    """The markers of reasoning. It can begin at the start of the output, or in the prompt."""

    begin: Marker
    end: Marker
    # It can also begin after other output.
    recurs: bool = False


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
    # The pattern between two calls after one `begin`. None: each call has its own `begin`.
    between: str | None = None
    end: str = ""
    # The most line breaks after `end` that belong to it.
    after_end: int = 0
    parameters: Parameters | None = None
    # The notation of arguments that are not JSON. The head ends with what opens them.
    notation: Notation | None = None

    @property
    def first_patterns(self) -> tuple[Pattern, ...]:
        """The patterns from `begin` to the first byte of the first call's arguments. One of them must match."""
        return self._before_arguments(self.opening + self.head)

    @property
    def next_patterns(self) -> tuple[Pattern, ...]:
        """The patterns before the arguments of the next call after the same `begin`."""
        return () if self.between is None else self._before_arguments(self.between + self.head)

    def _before_arguments(self, source: str) -> tuple[Pattern, ...]:
        return tuple(Pattern(source + ahead, len(ahead.encode())) for ahead in self._ahead())

    def _ahead(self) -> tuple[str, ...]:
        """The texts of which one must follow a head."""
        if self.notation:
            return ("",)
        if not self.parameters:
            return (OBJECT,)
        if not self.head.endswith(BLANK):
            return ("",)
        # The head does not show where it ends: what follows does.
        return self.parameters.begin.strip().partition("$key")[0], self.parameters.close.strip()

    def patterns(self) -> Iterator[Pattern]:
        """Every pattern whose bytes are held back until it matches."""
        yield from self.first_patterns
        yield from self.next_patterns
        yield from (Pattern(source) for source in (*self.tails, self.end) if source)
        if self.parameters:
            yield Pattern(self.parameters.begin)
            yield Pattern(self.parameters.close)


@dataclass(frozen=True, slots=True)
class CallIdShape:
    """The form of a call's id: a prefix, then what the model wrote, or else letters and digits."""

    # May contain $name, the name of the function.
    prefix: str = "call_"
    length: int = 24
    # What a constraint allows for $id.
    written: str = "[A-Za-z0-9]{9}"
    # An id that every template of the dialect accepts.
    example: str = "a1b2c3d4e"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The markup of a family of models."""

    name: str
    reasoning: Reasoning | None = None
    # A constraint forces the first form.
    forms: tuple[CallForm, ...] = ()
    ids: CallIdShape = CallIdShape()
    # Markers around content. After each of them the output may begin as at its start.
    wrappers: tuple[Marker, ...] = ()

    @property
    def notation(self) -> Notation | None:
        """The notation of the arguments; None: JSON, or parameters."""
        return self.forms[0].notation if self.forms else None

    def preferring(self, form: CallForm) -> Dialect:
        """A copy with this form as the first."""
        return replace(self, forms=(form, *(each for each in self.forms if each is not form)))

    def frames_with(self, token: bytes) -> bool:
        """Whether a token's text is part of the framing, and so not of the output."""
        return any(token in text.encode() for text in self._framing())

    def _framing(self) -> Iterator[str]:
        if self.reasoning:
            yield from (self.reasoning.begin.text, self.reasoning.end.text)
        yield from (each.text for each in self.wrappers)
        for form in self.forms:
            yield form.begin.text if form.begin else ""
            yield form.parameters.end.text if form.parameters else ""
            yield from form.notation.quotes if form.notation else ()
            yield from (pattern.source for pattern in form.patterns())

    @property
    def longest_marker(self) -> int:
        """The most bytes that are held back until the following bytes are known."""
        markers = [self.reasoning.begin, self.reasoning.end, *self.wrappers] if self.reasoning else [*self.wrappers]
        lengths = [len(each.text.encode()) + each.before + MAX_BLANKS for each in markers]
        for form in self.forms:
            n_begin = len(form.begin.text.encode()) + form.begin.before if form.begin else 0
            lengths += [n_begin + pattern.most_bytes for pattern in form.patterns()]
        return max(lengths, default=0)
