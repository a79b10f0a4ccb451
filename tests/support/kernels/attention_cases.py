"""Builds sequences in a paged cache, runs attention on a device, and measures the error against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import DEVICES, GPUS
from support.oracles import tolerances
from support.oracles.attention_oracle import (
    Heads,
    attention,
    multiplied,
    multiplied_on_gpu,
    softmax,
    spread,
    stored,
    stored_on_gpu,
    stored_rotated,
    types_of,
)
from support.oracles.rotation_oracle import ROTATED, codes_of, group_of, rotate

Array = np.ndarray
BLOCK = 16
NAN_BYTE = 0xFF  # NaN in every float type
Asked = tuple[int, int, list[int]]  # rows, position of the first, blocks


@dataclass
class Held:
    """One sequence: its K and V from cell 0, its blocks in the pool, the requested rows of q, their ends and starts."""

    k: Array
    v: Array
    q: Array
    blocks: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def seen(self) -> dict[str, list[int]]:
        """The arguments of the oracles that say which keys each row sees, where that is not by its position alone."""
        return {"ends": self.ends, "starts": self.starts}

    @property
    def first(self) -> int:
        return len(self.k) - len(self.q)

    def asked(self, begin: int = 0, end: int | None = None) -> Asked:
        """Returns rows [begin, end) of q as a sequence of a batch."""
        end = len(self.q) if end is None else end
        return (end - begin, self.first + begin, self.blocks)


def make_sequences(rng: np.random.Generator, heads: Heads, shapes: list[tuple[int, int]]) -> tuple[list[Held], int]:
    """Returns sequences of (tokens held, rows requested), whose blocks have a random order in the pool."""
    n_blocks = sum(-(-n // BLOCK) for n, _ in shapes) + 3
    order = rng.permutation(n_blocks).tolist()
    sequences = []
    for n_tokens, n_rows in shapes:
        k, v = (rng.normal(size=(n_tokens, heads.n_kv_heads * heads.head_dim)).astype(np.float32) for _ in range(2))
        q = rng.normal(size=(n_rows, heads.n_heads * heads.head_dim)).astype(np.float32)
        blocks = [order.pop() for _ in range(-(-n_tokens // BLOCK))]
        sequences.append(Held(k, v, q, blocks))
    return sequences, n_blocks


def make_cache(device: core.Device, heads: Heads, dtype: str, n_blocks: int, sequences: list[Held]) -> core.Cache:
    """Returns a cache of two layers. Layer 1 holds the sequences; everything else is NaN."""
    cache = core.Cache(
        device, dtype=dtype, n_layers=2, n_kv_heads=heads.n_kv_heads, head_dim=heads.head_dim, n_blocks=n_blocks
    )
    cache.fill(NAN_BYTE)
    for held in sequences:
        cache.append(1, [(len(held.k), 0, held.blocks)], held.k, held.v)
    return cache


def attend(
    cache: core.Cache,
    heads: Heads,
    batch: list[Asked],
    q: Array,
    *,
    scratch_fill: int | None = None,
    max_context: int = 0,
    max_sequences: int = 0,
    ends: list[list[int]] | None = None,
    starts: list[list[int]] | None = None,
) -> Array:
    return cache.attend(
        1,
        batch,
        q,
        heads.n_heads,
        heads.scale,
        soft_cap=heads.soft_cap,
        window=heads.window,
        sinks=np.array(heads.sinks, np.float32) if heads.sinks else None,
        scratch_fill=scratch_fill,
        max_context=max_context,
        max_sequences=max_sequences,
        ahead=heads.ahead,
        ends=ends or [],
        starts=starts or [],
    )


def attend_all(
    cache: core.Cache,
    heads: Heads,
    sequences: list[Held],
    *,
    scratch_fill: int | None = None,
    max_context: int = 0,
    max_sequences: int = 0,
) -> Array:
    batch = [held.asked() for held in sequences]
    q = np.concatenate([held.q for held in sequences])
    return attend(
        cache,
        heads,
        batch,
        q,
        scratch_fill=scratch_fill,
        max_context=max_context,
        max_sequences=max_sequences,
        ends=[held.ends for held in sequences],
        starts=[held.starts for held in sequences],
    )


def assert_one_result(
    heads: Heads, dtype: str, sequences: list[Held], n_blocks: int, part: Callable[[Held, slice], dict[str, Any]]
) -> None:
    """Asserts the same bits on every device, in one batch and for what is left of a sequence after any part of it.

    `part`: the arguments of attend() for some rows of a sequence.
    """
    reference = None
    for number, device in enumerate(DEVICES):
        cache = make_cache(device, heads, dtype, n_blocks, sequences)
        together = attend_all(cache, heads, sequences)
        reference = together if reference is None else reference
        assert_same_bits(together, reference)
        row = 0
        for held in sequences:
            n_rows = len(held.q)
            for begin in (0, 1 + number, n_rows - 1):
                rows = slice(min(begin, n_rows - 1), n_rows)
                rest = attend(cache, heads, [held.asked(rows.start)], held.q[rows], **part(held, rows))
                assert_same_bits(rest, reference[row + rows.start : row + n_rows])
            row += n_rows


class Expected:
    """The float64 outputs of some sequences and the error that a device may have; computed once per case."""

    def __init__(self, heads: Heads, dtype: str, sequences: list[Held], device: core.Device | None = None) -> None:
        self.heads, self.dtype, self.sequences = heads, dtype, sequences
        self.on_gpu = device in GPUS
        self.exact = self.outputs()
        self.bounds = np.concatenate([self._bounds(held) for held in sequences])

    def worst(self, actual: Array) -> float:
        """Returns the largest error, in units of the bound."""
        return self.distance(actual, self.exact)

    def is_missed(self, actual: Array, *, oracle: Heads | None = None, shift: int = 0, roll: int = 0) -> bool:
        """Returns whether the bound rejects outputs of other heads, of shifted positions or of neighbouring values."""
        return self.distance(actual, self.outputs(oracle, shift, roll)) > 1

    def distance(self, actual: Array, exact: Array) -> float:
        error = np.float64(actual) - exact
        if types_of(self.dtype)[1] in ROTATED:  # the bounds are those of the sums of rotated values
            error = rotate(error, self.heads.head_dim)
        return float((np.abs(error) / self.bounds).max())

    def outputs(self, oracle: Heads | None = None, shift: int = 0, roll: int = 0) -> Array:
        found = []
        for held in self.sequences:
            q, k, v = self._multiplied(held)
            first = max(0, held.first + shift)
            found.append(
                attention(
                    oracle or self.heads, q, first, k, np.roll(v, roll, axis=0), ends=held.ends, starts=held.starts
                )
            )
        return np.concatenate(found)

    def _multiplied(self, held: Held) -> tuple[Array, Array, Array]:
        """Returns q, K and V, rounded as the device rounds them before it multiplies."""
        if self.on_gpu:
            k, v = stored_on_gpu(held.k, self.dtype), stored_on_gpu(held.v, self.dtype)
            return multiplied_on_gpu(held.q, self.dtype, self.heads), k, v
        keys, values = types_of(self.dtype)
        head_dim = self.heads.head_dim
        return multiplied(held.q, keys, head_dim), stored(held.k, keys, head_dim), stored(held.v, values, head_dim)

    def _bounds(self, held: Held) -> Array:
        heads = self.heads
        q, k, v = self._multiplied(held)
        exact = (heads, q, held.first, k, v)
        bounds = np.zeros(q.shape)
        if self.on_gpu:
            bounds += tolerances.gpu_weights(spread(*exact, **held.seen), self.dtype, len(k), float(np.abs(v).max()))
        elif types_of(self.dtype)[1] == "bf16":
            bounds += tolerances.bfloat16_weights(spread(*exact, **held.seen))
        is_rotated = types_of(self.dtype)[1] in ROTATED
        if is_rotated:
            v = stored_rotated(held.v, types_of(self.dtype)[1], heads.head_dim)
        for head in range(heads.n_heads):
            bound = tolerances.attention(
                heads.q(q, head), heads.kv(k, head), heads.kv(v, head), heads.scale, heads.soft_cap
            )
            # Matrix instructions truncate sums where float32 rounds them.
            part = slice(head * heads.head_dim, (head + 1) * heads.head_dim)
            bounds[:, part] += 2 * bound if self.on_gpu else bound
        if not is_rotated:
            return bounds
        bounds += self._rounding(held, q, k)
        magnitudes = attention(heads, q, held.first, k, np.abs(v), **held.seen) + bounds
        return bounds + tolerances.head_rotation(magnitudes, group_of(heads.head_dim))

    def _rounding(self, held: Held, q: Array, k: Array) -> Array:
        """Bounds what the rounding of weights changes, where the values are rotated."""
        heads, kind = self.heads, ROTATED[types_of(self.dtype)[1]]
        codes, scales = codes_of(rotate(held.v, heads.head_dim), kind)
        levels = np.float64(kind.levels)[codes]
        per_head = heads.head_dim // 32
        bounds = []
        for head, weights in enumerate(softmax(heads, q, held.first, k, **held.seen)):
            own = slice(head // heads.group * per_head, (head // heads.group + 1) * per_head)
            bounds.append(tolerances.rounded_weights(weights, np.float64(scales[:, own, 0]), levels[:, own]))
        return np.concatenate(bounds, axis=1)


def worst(
    actual: Array, heads: Heads, dtype: str, sequences: list[Held], *, device: core.Device | None = None
) -> float:
    """Returns the largest error, in units of the bound."""
    return Expected(heads, dtype, sequences, device).worst(actual)
