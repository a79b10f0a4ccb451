"""Engines that may evaluate a part of a prompt, over scripts, and what they are expected to choose."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from imp_service import _core, _testing
from support.engine.script_engine import TurnedEngine
from support.oracles.script_oracle import Sampler
from support.oracles.sparse_oracle import GREEDY, chosen, script_importance, sparse_continuation

OPTIONS: dict[str, Any] = {
    "n_blocks": 64, "max_context": 1024, "max_running": 8, "step_tokens": 64, "prefill_chunk": 32,
    "cache_secret": (3, 5), "sparse_prefill": True, "sparse_threshold": 100,
}  # fmt: skip
# Of a model with a recurrent state: a snapshot in each block.
STATE = {"n_state_slots": 80, "state_snapshot_tokens": 16}
KEEP = 3000


class SparseEngine(TurnedEngine):
    """A script model with a draft model of the same rule, which scores prompts."""

    def __init__(
        self,
        *,
        script: dict[str, Any] | None = None,
        draft: dict[str, Any] | None = None,
        drafts: bool = False,
        cost: float = 0.1,
        n_draft_blocks: int = 64,
        draft_context: int = 1024,
        guess: Any = None,
        state: bool = False,
        **options: Any,
    ) -> None:
        script = {"state": state, **(script or {})}
        given = _testing.ScriptDraft(
            _testing.Script("hash", **(draft or {})), n_blocks=n_draft_blocks, max_context=draft_context,
            drafts=drafts, cost=cost,
        )  # fmt: skip
        engine_options = _core.EngineOptions(**{**OPTIONS, **(STATE if state else {}), **options})
        core = _testing.ManualEngine(_testing.Script("hash", **script), engine_options, guess, given)
        super().__init__(core)

    def ask(self, tokens: Sequence[int], policy: str | None = "sparse", keep: int = KEEP, **given: Any) -> int:
        return self.generate(tokens, sparse_policy=policy, sparse_keep=keep, **given)

    def report(self, ticket: int) -> tuple[bool, str, int, int]:
        sparse = self.started(ticket).sparse
        return sparse.is_sparse, sparse.reason, sparse.n_scored, sparse.n_selected

    def assert_nothing_left(self) -> None:
        """Asserts that no sequence, in either model, holds a block or a state."""
        self.assert_at_rest()
        assert self.core.states()[0] == 0
        assert self.core.draft_blocks[0] == 0


def kept_of(prompt: Sequence[int], keep: int = KEEP, *, n_cached: int = 0, **rules: Any) -> list[int]:
    """Returns the positions that a sparse prompt keeps."""
    rest = prompt[n_cached:]
    found = chosen(rest, script_importance(rest), Fraction(keep, 10000), **rules)
    return [*range(n_cached), *(n_cached + at for at in found)]


def expected(
    prompt: Sequence[int], n: int, sampler: Sampler = GREEDY, keep: int = KEEP, *, sequence: int = 0, **rules: Any
) -> list[int]:
    """Returns the first n outputs of a sparse prompt."""
    return sparse_continuation(prompt, kept_of(prompt, keep, **rules), n, sampler, sequence=sequence)
