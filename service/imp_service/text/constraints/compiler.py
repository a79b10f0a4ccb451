"""Compiles constraints on output within limits of time and memory. Equal constraints share one program."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union
from weakref import WeakValueDictionary

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from imp_service.api.constraint_spec import ConstraintKind, ConstraintSpec
from imp_service.text.constraints.grammar import schema_grammar, write_grammar
from imp_service.text.constraints.json_schema import parts_of
from imp_service.text.constraints.likely_text import LikelyText
from imp_service.text.constraints.program import ConstraintProgram, first_line
from imp_service.text.constraints.schema_core import Schema
from imp_service.text.constraints.shared_matcher import STATE_STEPS, MaskVocabulary, MemoryLedger
from imp_service.text.constraints.trial import TrialCompiler
from imp_service.text.constraints.trial_worker import CONTROL_TOKEN
from imp_service.text.errors import FieldInvalid, native_boundary
from imp_service.text.limits import TextLimits
from imp_service.text.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from imp_service.text.channels.call_constraint import CallConstraint

Constraint = Union[ConstraintSpec, "CallConstraint"]
# Where the library's error is in the grammar that imp wrote.
_IN_GRAMMAR = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: ")
# The longest search for the place of an error.
_LOCATING_SECONDS = 0.2
_CONTROL_TOKEN = re.compile(r"<\[\d+\]>")


class ConstraintCompiler:
    """Compiles for one vocabulary, and caches programs up to a limit of memory. Any thread may call.

    Compiling takes up to twice `compile_ms` of processor time, most of it in another process: keep it off an event
    loop. One constraint is compiled at a time.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        eos_ids: Iterable[int] | None = None,
        limits: TextLimits | None = None,
    ) -> None:
        """`vocab_size` is the model's: a mask has that many bits. Bits beyond the tokenizer's ids are never set.

        `eos_ids` are allowed exactly where the output may end. By default they are the tokenizer's.
        """
        self._limits = limits or TextLimits()
        ends = tuple(sorted(tokenizer.eos_ids if eos_ids is None else set(eos_ids)))
        if not ends:
            raise FieldInvalid("constraint", "the model has no end-of-sequence token")
        self._trial = TrialCompiler(compile_ms=self._limits.compile_ms, compile_bytes=self._limits.compile_bytes)
        # The worker starts while the vocabulary is read.
        self._trial.start()
        with native_boundary("llguidance"):
            pieces = _Pieces(tokenizer, ends)
            self._tokenizer = LLTokenizer(TokenizerWrapper(pieces), eos_token=list(ends))
        likely = LikelyText(tokenizer, pieces.tokens)
        self._vocabulary = MaskVocabulary.of(vocab_size, self._tokenizer.vocab_size, ends, likely)
        self._lock = threading.Lock()
        self._compiling = threading.Lock()
        # Programs kept for reuse, the least recently used first; and all that are alive, for running sequences too.
        self._kept: OrderedDict[Constraint, ConstraintProgram] = OrderedDict()
        self._known: WeakValueDictionary[Constraint, ConstraintProgram] = WeakValueDictionary()
        self._ledger = MemoryLedger(self._make_room)

    @property
    def n_bytes(self) -> int:
        """An upper estimate of what programs take, those kept for reuse and those in use."""
        return self._ledger.n_bytes

    def find(self, constraint: Constraint) -> ConstraintProgram | None:
        """The program if it was compiled before, else None. Does not wait."""
        with self._lock:
            program = self._known.get(constraint)
            if program is not None and constraint in self._kept:
                self._kept.move_to_end(constraint)
        return program

    def compile(self, constraint: Constraint) -> ConstraintProgram:
        """Raises `FieldInvalid` if the constraint cannot be compiled: output is never left unconstrained instead."""
        program = self.find(constraint)
        if program is not None:
            return program
        with self._compiling:
            program = self.find(constraint) or self._compile(constraint)
        with self._lock:
            self._known[constraint] = self._kept[constraint] = program
        self._make_room()
        return program

    def close(self) -> None:
        """Ends a running compilation; its caller gets `FieldInvalid`."""
        self._trial.close()

    def _make_room(self) -> None:
        """Drops the least recently used programs while the total, with those in use, is above the limit."""
        while self._ledger.n_bytes > self._limits.cache_bytes:
            with self._lock:
                if not self._kept:
                    return
                _, dropped = self._kept.popitem(last=False)
            del dropped

    def _compile(self, constraint: Constraint) -> ConstraintProgram:
        content = None if isinstance(constraint, ConstraintSpec) else constraint.content
        if content is not None:
            # An error of the content names its field.
            self._try(content)
        grammar, n_bytes = self._try(constraint)

        def compile_for(n_states: int) -> LLMatcher:
            limits = LLParserLimits(**_parser_limits(n_states))
            return LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)

        return ConstraintProgram(
            compile_for,
            path=constraint.path,
            vocabulary=self._vocabulary,
            n_bytes=n_bytes,
            ledger=self._ledger,
        )

    def _try(self, constraint: Constraint) -> tuple[str, int]:
        """The grammar, and the memory that it takes. Raises FieldInvalid if it cannot be compiled within the limits."""
        try:
            with native_boundary("llguidance"):
                grammar = LLMatcher.grammar_from_lark(write_grammar(constraint, self._limits))
        except ValueError as caught:
            raise FieldInvalid(constraint.path, first_line(str(caught))) from caught
        on_trial = (
            grammar if isinstance(constraint, ConstraintSpec) else _CONTROL_TOKEN.sub(f"<[{CONTROL_TOKEN}]>", grammar)
        )
        trial = self._trial.compile(constraint.path, on_trial, _parser_limits(STATE_STEPS[0]))
        if trial.error:
            raise self._refusal(constraint, trial.error)
        return grammar, trial.n_bytes

    def _refusal(self, constraint: Constraint, error: str) -> FieldInvalid:
        """The library's error, with the place in the schema. The library does not name it, so parts are tried."""
        until = time.monotonic() + _LOCATING_SECONDS
        for path, parts in _schemas_of(constraint):
            for pointer, schema in reversed(parts):
                grammar = LLMatcher.grammar_from_lark(schema_grammar(schema))
                try:
                    found = self._trial.compile(path, grammar, _parser_limits(STATE_STEPS[0])).error
                except FieldInvalid:
                    found = ""
                if found and _words(found) == _words(error):
                    return FieldInvalid(path, f"at #{pointer}: {_words(error)}")
                if time.monotonic() > until:
                    return FieldInvalid(constraint.path, _words(error))
        return FieldInvalid(constraint.path, _words(error))


def _words(error: str) -> str:
    """The library's error in the words of a schema."""
    if "coerce_one_of" in error:
        return "oneOf: schemas that may overlap cannot be enforced; use anyOf"
    return _IN_GRAMMAR.sub("", first_line(error))


def _schemas_of(constraint: Constraint) -> Iterator[tuple[str, Sequence[tuple[str, Schema]]]]:
    """The field of each schema of a constraint, and its parts with their places."""
    if not isinstance(constraint, ConstraintSpec):
        for each in constraint.functions:
            yield each.path, parts_of(each.schema, is_strict=each.is_strict)
    elif constraint.kind is ConstraintKind.JSON_SCHEMA:
        yield constraint.path, parts_of(constraint.source, is_strict=constraint.is_strict)


class _Pieces:
    """The vocabulary as the library reads it."""

    def __init__(self, tokenizer: Tokenizer, ends: tuple[int, ...]) -> None:
        special = tokenizer.special_ids | tokenizer.eos_ids | set(ends)
        # Special tokens have names of their own, which no text matches: a grammar names them by their ids.
        self.tokens = [b"%d" % i if i in special else tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(special)
        self.eos_token_id = ends[0]
        self.bos_token_id = None

    def __call__(self, _text: bytes) -> list[int]:
        # The library calls this only to force tokens, which every grammar here turns off.
        return []


def _parser_limits(n_states: int) -> dict[str, Any]:
    return {
        # The limit for one mask.
        "step_max_items": 50_000,
        "step_lexer_fuel": 200_000,
        "max_lexer_states": n_states,
        # The cost of precomputing depends on the vocabulary, which the worker does not have.
        "precompute_large_lexemes": False,
        "verbose_errors": False,
    }
