"""Constraints on output: what a caller may ask for, compiled once and shared, followed token by token by a sequence."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark

from imp_service.text.constraint_state import ConstraintProgram
from imp_service.text.errors import FieldInvalid, native_boundary
from imp_service.text.gbnf import compile_gbnf
from imp_service.text.json_schema import check_json_schema
from imp_service.text.limits import KIB, TextLimits
from imp_service.text.regex_source import check_regex, quote_for_regex
from imp_service.text.tokenizer import Tokenizer

_MAX_MESSAGE = 200
# What a compiled program holds, measured: its own tables, and what each byte of the source becomes.
_PROGRAM_BYTES = 128 * KIB
_BYTES_PER_SOURCE_BYTE = 64
# JSON between two of its tokens: enough for an indented line, and never without an end.
_JSON_SPACES = r"[\x20\x0A\x0D\x09]{1,64}"


class ConstraintKind(Enum):
    """The members of `imp.v1.Constraint.kind`, by their field's name."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GBNF = "gbnf"
    CHOICES = "choices"
    JSON_OBJECT = "json_object"


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """What the output must be. `source` is the text of the first three kinds, `choices` belong to the fourth."""

    kind: ConstraintKind
    source: str = ""
    choices: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The field it came in."""
        return f"constraint.{self.kind.value}"


class ConstraintCompiler:
    """Compiles for one vocabulary, and keeps what it compiled within a bound. Any thread may call.

    Compiling takes up to `compile_ms` of processor time: keep it off an event loop.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        eos_ids: Iterable[int] | None = None,
        limits: TextLimits | None = None,
    ) -> None:
        """`vocab_size` is the model's: masks have that many bits, those beyond the tokenizer's ids never set.

        `eos_ids` are allowed exactly where the output may end; by default the tokenizer's.
        """
        self._limits = limits or TextLimits()
        self._vocab_size = vocab_size
        self._ends = tuple(sorted(tokenizer.eos_ids if eos_ids is None else set(eos_ids)))
        if not self._ends:
            raise FieldInvalid("constraint", "the model has no end-of-sequence token")
        with native_boundary("llguidance"):
            self._tokenizer = LLTokenizer(TokenizerWrapper(_Pieces(tokenizer, self._ends)), eos_token=list(self._ends))
        self._lock = threading.Lock()
        self._programs: OrderedDict[ConstraintSpec, ConstraintProgram] = OrderedDict()
        self._n_bytes = 0

    @property
    def cached_bytes(self) -> int:
        """An upper estimate of what the kept programs hold."""
        return self._n_bytes

    def compile(self, constraint: ConstraintSpec) -> ConstraintProgram:
        """`FieldInvalid` names what cannot be compiled; there is no unconstrained answer instead."""
        with self._lock:
            program = self._programs.get(constraint)
            if program is not None:
                self._programs.move_to_end(constraint)
                return program
        program = self._compile(constraint)
        with self._lock:
            if constraint not in self._programs:
                self._programs[constraint] = program
                self._n_bytes += program.n_bytes
            while self._n_bytes > self._limits.cache_bytes:
                _, dropped = self._programs.popitem(last=False)
                self._n_bytes -= dropped.n_bytes
        return program

    def _compile(self, constraint: ConstraintSpec) -> ConstraintProgram:
        started = time.thread_time()
        try:
            with native_boundary("llguidance"):
                grammar = _GRAMMARS[constraint.kind](constraint, self._limits)
                matcher = LLMatcher(
                    self._tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=_parser_limits()
                )
                error = matcher.get_error()
        except ValueError as caught:
            raise FieldInvalid(constraint.path, _first_line(str(caught))) from caught
        if error:
            raise FieldInvalid(constraint.path, _first_line(error))
        spent_ms = (time.thread_time() - started) * 1000
        if spent_ms > self._limits.compile_ms:
            raise FieldInvalid(constraint.path, f"takes more than {self._limits.compile_ms} ms to compile")
        n_source = len(constraint.source) + sum(map(len, constraint.choices))
        return ConstraintProgram(
            matcher,
            path=constraint.path,
            vocab_size=self._vocab_size,
            n_known=self._tokenizer.vocab_size,
            ends=self._ends,
            n_bytes=_PROGRAM_BYTES + _BYTES_PER_SOURCE_BYTE * n_source,
        )


class _Pieces:
    """The vocabulary as the library reads it."""

    def __init__(self, tokenizer: Tokenizer, ends: tuple[int, ...]) -> None:
        special = tokenizer.special_ids | tokenizer.eos_ids | set(ends)
        # A token that is no text satisfies no grammar; the ends are known by their ids.
        self.tokens = [b"" if i in special else tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(special)
        self.eos_token_id = ends[0]
        self.bos_token_id = None

    def __call__(self, _text: bytes) -> list[int]:
        # Asked for only where tokens are forced, which no grammar here wants.
        return []


def _parser_limits() -> LLParserLimits:
    return LLParserLimits(
        step_max_items=500_000,
        step_lexer_fuel=2_000_000,
        # A state takes one to two KiB.
        max_lexer_states=20_000,
        verbose_errors=False,
    )


# Where the grammar leaves one way on, the library would otherwise force one spelling of it in tokens; the mask is to
# hold every token that can go on.
_HEADER = '%llguidance {"no_forcing": true}\n'


def _json_schema(constraint: ConstraintSpec, limits: TextLimits) -> str:
    return _from_schema(check_json_schema(constraint.source, constraint.path, limits))


def _json_object(_constraint: ConstraintSpec, _limits: TextLimits) -> str:
    return _from_schema({"type": "object"})


def _from_schema(schema: dict[str, object]) -> str:
    return f"{_HEADER}start: %json {json.dumps({**schema, 'x-guidance': {'whitespace_pattern': _JSON_SPACES}})}\n"


def _regex(constraint: ConstraintSpec, limits: TextLimits) -> str:
    check_regex(constraint.source, constraint.path, limits)
    return _from_regex(constraint.source)


def _from_regex(source: str) -> str:
    # \d is a digit that programs read: 0 to 9.
    return f"{_HEADER}start: /{regex_to_lark(source, 'd')}/\n"


def _gbnf(constraint: ConstraintSpec, limits: TextLimits) -> str:
    compiled = compile_gbnf(constraint.source, constraint.path, limits)
    return _from_regex(compiled.source) if compiled.is_regex else _HEADER + compiled.source


def _choices(constraint: ConstraintSpec, limits: TextLimits) -> str:
    path, choices = constraint.path, constraint.choices
    if not 1 <= len(choices) <= limits.choices:
        raise FieldInvalid(path, f"{len(choices)} choices, expected 1 to {limits.choices}")
    n_bytes = [len(choice.encode("utf-8", "surrogatepass")) for choice in choices]
    for index, n in enumerate(n_bytes):
        if not 1 <= n <= limits.choice_bytes:
            raise FieldInvalid(f"{path}.values[{index}]", f"{n} bytes, expected 1 to {limits.choice_bytes}")
    if sum(n_bytes) > limits.constraint_bytes:
        raise FieldInvalid(path, f"{sum(n_bytes)} bytes in all, limit {limits.constraint_bytes}")
    return _from_regex("|".join(quote_for_regex(choice) for choice in dict.fromkeys(choices)))


_GRAMMARS: dict[ConstraintKind, Callable[[ConstraintSpec, TextLimits], str]] = {
    ConstraintKind.JSON_SCHEMA: _json_schema,
    ConstraintKind.REGEX: _regex,
    ConstraintKind.GBNF: _gbnf,
    ConstraintKind.CHOICES: _choices,
    ConstraintKind.JSON_OBJECT: _json_object,
}


def _first_line(message: str) -> str:
    """The library's words without the source that it prints below them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = next(
        (line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0] if lines else ""
    )
    return said[:_MAX_MESSAGE] or "cannot be compiled"
