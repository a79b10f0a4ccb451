"""Where a sequence stands in its constraint: which tokens may come next, and whether it may or must end."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher

from imp_service.text.errors import FieldInvalid, native_boundary

_WORD_BITS = 32
_TOO_COMPLEX = ("ParserTooComplex", "LexerTooComplex")


class ConstraintProgram:
    """A compiled constraint. Immutable; `start` may be called from any thread."""

    def __init__(
        self, matcher: LLMatcher, *, path: str, vocab_size: int, n_known: int, ends: tuple[int, ...], n_bytes: int
    ) -> None:
        self._matcher = matcher
        self.path = path
        self.vocab_size = vocab_size
        # Ids of the tokenizer; the model may have more rows.
        self.n_known = n_known
        self.ends = frozenset(ends)
        self.n_bytes = n_bytes
        bits = np.zeros(n_words(vocab_size) * _WORD_BITS, dtype=np.uint8)
        bits[list(ends)] = 1
        self.end_mask = np.packbits(bits, bitorder="little").tobytes()

    def start(self) -> ConstraintState:
        """The state before the first output."""
        return ConstraintState(self, self.new_matcher())

    def new_matcher(self) -> LLMatcher:
        """The library's state before the first output; what is costly in it is shared."""
        return self._matcher.deep_copy()


def n_words(vocab_size: int) -> int:
    """Words of 32 bits in a mask."""
    return (vocab_size + _WORD_BITS - 1) // _WORD_BITS


class ConstraintState:
    """Follows one sequence. Not for use by two threads at once; computing a mask releases Python's lock."""

    def __init__(self, program: ConstraintProgram, matcher: LLMatcher) -> None:
        self._program = program
        self._matcher = matcher
        self._tokens: list[int] = []
        # Outputs after the end, where the caller goes on regardless (ignore_eos); 0: not ended.
        self._n_after_end = 0
        self._mask: bytes | None = None

    @property
    def n_accepted(self) -> int:
        """Outputs followed so far."""
        return len(self._tokens) + self._n_after_end

    @property
    def has_ended(self) -> bool:
        """An end-of-sequence token was accepted."""
        return self._n_after_end > 0

    @property
    def may_end(self) -> bool:
        """What is there is a member of the language."""
        return self.has_ended or bool(self._matcher.is_accepting())

    @property
    def only_end_is_possible(self) -> bool:
        """Nothing but the end is possible: the sequence ends here, whatever its least length."""
        return self.may_end and self.mask() == self._program.end_mask

    def mask(self) -> bytes:
        """One bit per id of the model, lowest first, in whole words of 32 bits.

        No bit is set where no token can go on, which a vocabulary that lacks a byte may bring about.
        """
        if self._mask is None:
            self._mask = self._program.end_mask if self.has_ended else self._compute_mask()
        return self._mask

    def accept(self, token_id: int) -> bool:
        """Takes the next output; False, and nothing changes, where the constraint does not allow it."""
        if token_id in self._program.ends:
            if not self.may_end:
                return False
            self._n_after_end += 1
        elif self.has_ended or not 0 <= token_id < self._program.n_known:
            return False
        else:
            with native_boundary("llguidance"):
                taken = self._matcher.consume_token(token_id)
            if not taken:
                self._restore()
                return False
            self._tokens.append(token_id)
        self._mask = None
        return True

    def rollback(self, n_tokens: int) -> None:
        """Forgets the last outputs."""
        if not 0 <= n_tokens <= self.n_accepted:
            raise ValueError(f"rollback of {n_tokens} outputs, {self.n_accepted} were accepted")
        n_after_end = min(n_tokens, self._n_after_end)
        n_text = n_tokens - n_after_end
        self._n_after_end -= n_after_end
        del self._tokens[len(self._tokens) - n_text :]
        if n_text and (self._matcher.is_error() or not self._matcher.rollback(n_text)):
            self._restore()
        if n_tokens:
            self._mask = None

    def fork(self) -> ConstraintState:
        """A copy that goes its own way."""
        copy = ConstraintState(self._program, self._matcher.deep_copy())
        copy._tokens = self._tokens.copy()
        copy._n_after_end, copy._mask = self._n_after_end, self._mask
        return copy

    def _compute_mask(self) -> bytes:
        mask = np.zeros(n_words(self._program.vocab_size), dtype="<u4")
        with native_boundary("llguidance"):
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, 4 * n_words(self._program.n_known))
        if self._matcher.is_error():
            # Asking spoilt the library's state.
            reason = self._matcher.stop_reason()
            self._restore()
            if reason in _TOO_COMPLEX:
                raise FieldInvalid(self._program.path, "grew beyond the limits of what can be followed")
            return bytes(mask.nbytes)
        return mask.tobytes()

    def _restore(self) -> None:
        """The library's state for the outputs that stand: a refusal, and some rollbacks, leave it unusable."""
        self._matcher = self._program.new_matcher()
        if self._tokens and not self._matcher.consume_tokens(self._tokens):
            raise RuntimeError("the library refuses tokens that it took before")
