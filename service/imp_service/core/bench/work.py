"""The least work of a case: the bytes that it must read from memory, and the operations that it must compute."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from imp_service import _core

PeakKind = Literal["int8", "bf16", "f32"]

# Weight types whose products are not computed in int8.
FLOAT_PEAKS: dict[str, PeakKind] = {"f32": "f32", "f16": "f32", "bf16": "bf16"}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one repetition. A multiplication and an addition are two operations."""

    tokens: int
    bytes: float
    ops: float


@dataclass(frozen=True, slots=True)
class ModelWork:
    """A model's costs, from which the work of every case is computed.

    A step reads the weights once for all rows, the head only if it samples, and only the experts that rows use. It
    reads the cache once for each sequence. The CPU's caches are ignored, and so is what a kernel reads twice.
    """

    body_bytes: int
    body_ops: float  # of one row
    head_bytes: int
    head_ops: int
    kv_bytes: float  # of one token in one layer
    attention_ops: int  # of one query and one key in one layer
    windows: tuple[tuple[int, int], ...]  # (tokens that attention sees, 0 for all; number of layers)
    peak: PeakKind  # the arithmetic of most operations
    expert_bytes: int = 0  # of all experts; not in body_bytes
    expert_share: float = 0.0  # of the experts that one row uses

    def prefill(self, tokens: int, chunk: int) -> Work:
        """The work of a prompt in steps of at most `chunk` tokens."""
        ends = [min(start + chunk, tokens) for start in range(0, tokens, chunk)]
        sizes = [end - start for start, end in zip(range(0, tokens, chunk), ends, strict=True)]
        return Work(
            tokens,
            sum(map(self._weights_bytes, sizes)) + self.head_bytes + self.kv_bytes * self._seen(ends),
            tokens * self.body_ops + self.head_ops + self.attention_ops * self._seen(range(1, tokens + 1)),
        )

    def decode(self, batch: int, depth: int, tokens: int) -> Work:
        """The work from each sequence's first output to its last: one step fewer than outputs."""
        steps = tokens - 1
        seen = batch * self._seen(range(depth + 2, depth + tokens + 1))
        return Work(
            batch * steps,
            steps * (self._weights_bytes(batch) + self.head_bytes) + self.kv_bytes * seen,
            batch * steps * (self.body_ops + self.head_ops) + self.attention_ops * seen,
        )

    def _weights_bytes(self, rows: int) -> float:
        """Bytes read in a step of so many rows, without the head. Each expert is equally likely to get a row."""
        return self.body_bytes + self.expert_bytes * (1 - (1 - self.expert_share) ** rows)

    def _seen(self, contexts: Iterable[int]) -> int:
        """The number of keys, over all layers, that queries at the end of each context see."""
        lengths = list(contexts)
        return sum(
            n_layers * sum(min(length, window) if window else length for length in lengths)
            for window, n_layers in self.windows
        )


def model_work(model: _core.Model) -> ModelWork:
    """The costs of a loaded model in its memory layouts."""
    matrices = [weight for weight in model.weights if weight["layout"] != "vector"]
    vectors = [weight for weight in model.weights if weight["layout"] == "vector"]
    (head,) = (weight for weight in matrices if weight["use"] == "head")
    # A table that is only looked up does not count: a token reads one row.
    body = [weight for weight in matrices if weight["use"] in ("product", "expert")]
    facts = {fact["name"]: fact["value"] for fact in model.facts}
    share = int(facts.get("n_experts_used", 0)) / max(1, int(facts["n_experts"]))

    def ops_of(weight: dict[str, Any]) -> float:
        """The operations of one row."""
        elements: int = weight["n"] * weight["k"] * weight["n_matrices"]
        return 2 * elements * (share if weight["use"] == "expert" else 1)

    ops: defaultdict[PeakKind, float] = defaultdict(float)
    for weight in [*body, head]:
        # A type without its own kernel is decoded and multiplied as floats.
        peak = "f32" if weight["layout"] == "file" else FLOAT_PEAKS.get(weight["dtype"], "int8")
        ops[peak] += ops_of(weight)
    cached_tokens = model.n_blocks * model.kv_block_tokens
    return ModelWork(
        body_bytes=sum(weight["n_bytes"] for weight in body + vectors if weight["use"] != "expert"),
        body_ops=sum(map(ops_of, body)),
        head_bytes=head["n_bytes"],
        head_ops=2 * head["n"] * head["k"],
        kv_bytes=model.memory["items"]["kv"] / cached_tokens / len(model.windows),
        attention_ops=4 * model.n_heads * model.head_dim,
        windows=tuple(sorted(Counter(model.windows).items())),
        peak=max(ops, key=lambda kind: ops[kind]),
        expert_bytes=sum(weight["n_bytes"] for weight in body if weight["use"] == "expert"),
        expert_share=share,
    )
