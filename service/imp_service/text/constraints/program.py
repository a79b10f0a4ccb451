"""A compiled constraint, which its sequences share. It is compiled again when it is exhausted.

The library adds states to its lexer when texts reach them, for all sequences of a program together, up to a fixed
number. Beyond that the program refuses everything. So a program starts with a low number of states, and is compiled
again with a higher one if needed. The memory of that number of states is charged in advance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from llguidance import LLMatcher

from imp_service.text.constraints.shared_matcher import (
    STATE_BYTES,
    STATE_STEPS,
    MaskVocabulary,
    MemoryLedger,
    SharedMatcher,
)
from imp_service.text.constraints.state import ConstraintState
from imp_service.text.errors import FieldInvalid, native_boundary

_MAX_MESSAGE = 200


class ConstraintProgram:
    """May be used from any thread."""

    def __init__(
        self,
        compile_for: Callable[[int], LLMatcher],
        *,
        path: str,
        vocabulary: MaskVocabulary,
        n_bytes: int,
        ledger: MemoryLedger,
    ) -> None:
        """`compile_for` compiles with a given number of states. `n_bytes` is the memory without any state."""
        self._compile_for = compile_for
        self._n_bytes = n_bytes
        self._ledger = ledger
        self._lock = threading.Lock()
        self._step = 0
        self.path = path
        self.vocabulary = vocabulary
        self._shared: SharedMatcher | None = self._make(0)

    @property
    def ends(self) -> frozenset[int]:
        """Ids that end the output."""
        return self.vocabulary.ends

    def start(self) -> ConstraintState:
        """The state before the first output."""
        return ConstraintState(self)

    def shared(self) -> SharedMatcher:
        """The matcher that sequences copy; compiled again if the last one is exhausted."""
        with self._lock:
            if self._shared is None:
                self._shared = self._make(self._step)
            return self._shared

    def replace(self, spent: SharedMatcher, *, needs_room: bool) -> SharedMatcher:
        """The successor of an exhausted matcher; the first sequence that asks for it has it compiled."""
        with self._lock:
            if self._shared is spent:
                self._shared = None
                self._step = min(spent.step + needs_room, len(STATE_STEPS) - 1)
        return self.shared()

    def alone(self) -> SharedMatcher:
        """A matcher for one sequence that exhausts shared ones, so that it does not disturb the others."""
        return self._make(len(STATE_STEPS) - 1)

    def _make(self, step: int) -> SharedMatcher:
        with native_boundary("llguidance"):
            matcher = self._compile_for(STATE_STEPS[step])
            error = matcher.get_error()
            if not error:
                # Only computing a mask sets the limits of later copies. A copy does it: the original keeps no state.
                matcher.deep_copy().compute_bitmask()
        if error:
            raise FieldInvalid(self.path, first_line(error))
        shared = SharedMatcher(matcher, step)
        self._ledger.charge(shared, self._n_bytes + STATE_STEPS[step] * STATE_BYTES)
        return shared


def first_line(message: str) -> str:
    """The first line of the library's message, without the lines of source code."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    found = next(
        (line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0] if lines else ""
    )
    return found[:_MAX_MESSAGE] or "cannot be compiled"
