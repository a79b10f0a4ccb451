"""The state of one sequence in its constraint: the tokens that may come next, and whether the text may or must end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from imp_service.text.constraints.shared_matcher import STATE_STEPS, n_words
from imp_service.text.errors import FieldInvalid, NativePanic, native_boundary

if TYPE_CHECKING:
    from imp_service.text.constraints.program import ConstraintProgram

# The library's error begins with this text if the lexer, which several sequences share, is exhausted or broken, ...
_NO_ROOM = "lexer error: too many states"
_SPENT = ("lexer error", "panic:")
# ... and with this one if this sequence alone exceeded a limit.
_TOO_COMPLEX = ("parser error", "Parser Error: Current row")
# Limit of processor time for one mask: the library's own limits do not bound the work on an ambiguous grammar.
MASK_SECONDS = 0.1
# A replay computes a mask after this many tokens: a mask resets the library's budget.
_TOKENS_PER_REFILL = 64


@dataclass(slots=True)
class Ahead:
    """Guesses of the next outputs that the constraint allows, and the mask of the output after each one."""

    # The constraint allows no other text.
    is_forced: bool = False
    tokens: list[int] = field(default_factory=list)
    masks: list[bytes] = field(default_factory=list)
    # Only the end can follow the last guess, which has no mask then.
    ends: bool = False


class ConstraintState:
    """Follows one sequence. Only one thread at a time may use it; computing a mask releases Python's lock.

    If the shared program is exhausted, the state continues with a newly compiled one, which allows the same tokens.
    """

    def __init__(self, program: ConstraintProgram) -> None:
        self._program = program
        self._words = program.vocabulary
        self._shared = program.shared()
        self._matcher = self._shared.copy()
        self._n_replaced = 0
        # This sequence has a lexer of its own: if that is exhausted, no other sequence is the cause.
        self._is_alone = False
        self._tokens: list[int] = []
        # Outputs from the end token on: with ignore_eos the caller continues after it. 0: not ended.
        self._n_after_end = 0
        self._mask: bytes | None = None
        # Guesses are being taken, which may never be outputs.
        self._is_ahead = False

    @property
    def n_accepted(self) -> int:
        """The number of accepted outputs."""
        return len(self._tokens) + self._n_after_end

    @property
    def has_ended(self) -> bool:
        """An end-of-sequence token was accepted."""
        return self._n_after_end > 0

    @property
    def may_end(self) -> bool:
        """The text so far satisfies the constraint."""
        # The mask comes first: only computing it detects an exhausted lexer.
        return self.has_ended or (self.mask() is not None and bool(self._matcher.is_accepting()))

    @property
    def only_end_is_possible(self) -> bool:
        """Only an end token is possible: the sequence ends here, whatever its minimum length."""
        return self.mask() == self._words.end_mask and self.may_end

    def mask(self) -> bytes:
        """One bit per id of the model, lowest first, in whole words of 32 bits.

        No bit is set if no token can continue the text, which may happen if the vocabulary lacks a byte. Raises
        `FieldInvalid` if the constraint costs more than one sequence may spend.
        """
        if self._mask is None:
            self._mask = self._words.end_mask if self.has_ended else self._compute_mask()
        return self._mask

    def accept(self, token_id: int) -> bool:
        """Takes the next output. Returns False, and changes nothing, if the constraint does not allow it."""
        if token_id in self._words.ends:
            if not self.may_end:
                return False
            self._n_after_end += 1
        elif self.has_ended or not 0 <= token_id < self._words.n_known:
            return False
        elif self._consume(token_id):
            self._tokens.append(token_id)
        else:
            return False
        self._mask = None
        return True

    def accept_all(self, token_ids: Sequence[int]) -> int:
        """Takes the next outputs. Returns how many: all, or those before the first one that is not allowed."""
        for n, token_id in enumerate(token_ids):
            if n % _TOKENS_PER_REFILL == 0:
                self.mask()
            if not self.accept(token_id):
                return n
        return len(token_ids)

    def rollback(self, n_tokens: int) -> None:
        """Drops the last outputs."""
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
        """An independent copy."""
        copy = ConstraintState.__new__(ConstraintState)
        copy._program, copy._words, copy._shared = self._program, self._words, self._shared
        copy._matcher = self._matcher.deep_copy()
        copy._n_replaced, copy._is_alone = self._n_replaced, self._is_alone
        copy._tokens = self._tokens.copy()
        copy._n_after_end, copy._mask = self._n_after_end, self._mask
        copy._is_ahead = False
        return copy

    def ahead(self, proposal: Sequence[int], most: int) -> Ahead:
        """Up to `most` guesses: the allowed part of the proposal, or what the constraint forces if that is longer.

        The state stays as it is, and a guess on which the constraint fails is left out. Only outputs may exhaust a
        lexer that this sequence has alone, so that guesses cannot end it.
        """
        found = Ahead()
        if most <= 0 or self._is_alone or self.only_end_is_possible:
            return found
        now, n_before = self.mask(), self.n_accepted
        self._is_ahead = True
        try:
            guesses, found.is_forced = self._guesses(proposal, most)
            self._walk(guesses, found)
        except (FieldInvalid, NativePanic):
            pass
        finally:
            self._is_ahead = False
            self._return(n_before)
        self._mask = now
        return found

    def _guesses(self, proposal: Sequence[int], most: int) -> tuple[list[int], bool]:
        """The better ones, and whether the constraint forces them."""
        proposed = list(proposal[:most])
        with native_boundary("llguidance"):
            forced = self._words.likely.after(self._matcher, self.mask(), self._tokens)[:most]
            is_longer = bool(proposed) and len(proposed) >= len(forced)
            n_allowed = self._matcher.validate_tokens(proposed) if is_longer else 0
        is_forced = len(forced) > n_allowed
        return list(forced) if is_forced else proposed[:n_allowed], is_forced

    def _walk(self, guesses: Sequence[int], ahead: Ahead) -> None:
        """Takes the guesses as long as they are allowed, and notes the masks after them."""
        for token in guesses:
            if token in self._words.ends or not _is_set(self.mask(), token) or not self.accept(token):
                return
            if self.only_end_is_possible:
                ahead.tokens.append(token)
                ahead.ends = True
                return
            mask = self.mask()
            if not any(mask):
                return
            ahead.tokens.append(token)
            ahead.masks.append(mask)

    def _return(self, n_accepted: int) -> None:
        """Drops the outputs after the first `n_accepted`, whatever state the library is in."""
        if self.n_accepted > n_accepted:
            self.rollback(self.n_accepted - n_accepted)
        elif self._matcher.is_error():
            self._restore()

    def _compute_mask(self) -> bytes:
        while True:
            mask, error = self._ask()
            if not error:
                return mask
            if error.startswith(_SPENT):
                self._replace(error)
                continue
            # The failed call left the library's state unusable.
            self._restore()
            if error.startswith(_TOO_COMPLEX):
                raise self._too_costly()
            return bytes(len(mask))

    def _ask(self) -> tuple[bytes, str]:
        mask = np.zeros(n_words(self._words.vocab_size), dtype="<u4")
        began = time.thread_time()
        with native_boundary("llguidance"):
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, 4 * n_words(self._words.n_known))
        if time.thread_time() - began > MASK_SECONDS:
            raise self._too_costly()
        return mask.tobytes(), self._matcher.get_error()

    def _consume(self, token_id: int) -> bool:
        """Whether the constraint allows the token. An exhausted lexer, which refuses all, is replaced first."""
        for _ in range(2):
            with native_boundary("llguidance"):
                if self._matcher.consume_token(token_id):
                    return True
            error = self._matcher.get_error()
            if not error.startswith(_SPENT):
                error = self._error_of_shared()
            if not error.startswith(_SPENT):
                break
            self._replace(error)
        self._restore()
        return False

    def _error_of_shared(self) -> str:
        """Why the lexer cannot be used; empty if it can."""
        matcher = self._shared.copy()
        with native_boundary("llguidance"):
            matcher.compute_bitmask()
        return matcher.get_error()

    def _replace(self, error: str) -> None:
        """Continues with a fresh program. Raises `FieldInvalid` if the sequence exhausted a program alone."""
        while error:
            if self._is_ahead:
                raise self._too_costly()
            if not error.startswith(_SPENT):
                raise RuntimeError("the library refuses tokens that it accepted before")
            needs_room = error.startswith(_NO_ROOM)
            shared = self._program.replace(self._shared, needs_room=needs_room)
            if self._is_alone:
                if error.startswith("panic:"):
                    raise NativePanic("llguidance", "the library panicked")
                raise self._too_costly()
            self._n_replaced += 1
            self._is_alone = not needs_room or self._n_replaced > len(STATE_STEPS)
            self._shared = self._program.alone() if self._is_alone else shared
            error = self._replay()

    def _replay(self) -> str:
        """Rebuilds the library's state from the accepted outputs. Returns the error, or an empty string."""
        self._matcher = self._shared.copy()
        for at in range(0, len(self._tokens), _TOKENS_PER_REFILL):
            with native_boundary("llguidance"):
                self._matcher.compute_bitmask()
                if not self._matcher.is_error():
                    self._matcher.consume_tokens(self._tokens[at : at + _TOKENS_PER_REFILL])
            if self._matcher.is_error():
                return self._matcher.get_error() or "refused"
        return ""

    def _restore(self) -> None:
        """Rebuilds the state after a refusal or a rollback that left the library's own unusable."""
        self._replace_if(self._replay())

    def _replace_if(self, error: str) -> None:
        if error:
            self._replace(error if error.startswith(_SPENT) else self._error_of_shared() or error)

    def _too_costly(self) -> FieldInvalid:
        return FieldInvalid(self._program.path, "needs more memory or time than one sequence may use")


def _is_set(mask: bytes, token: int) -> bool:
    return bool(mask[token // 8] >> token % 8 & 1)
