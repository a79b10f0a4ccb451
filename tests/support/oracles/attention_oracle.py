"""Attention in float64, from its definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from support.oracles.rotation_oracle import BLOCK, ROTATED, codes_of, decoded, q8_0_blocks, rotate

Array = np.ndarray


def blocks_of(values: Array) -> tuple[Array, Array]:
    """Returns q8_0 codes and float16 scales of rows."""
    return q8_0_blocks(values.reshape(*values.shape[:-1], -1, BLOCK))


def types_of(dtype: str) -> tuple[str, str]:
    """Returns the types of keys and of values."""
    keys, _, values = dtype.partition("/")
    return keys, values or keys


def is_quantized(dtype: str) -> bool:
    return any(each not in ("f32", "f16", "bf16") for each in types_of(dtype))


def stored(values: Array, dtype: str, head_dim: int = 0) -> Array:
    """Returns the values that a cache of this type stores for float32 values, in float64."""
    if dtype in ROTATED:
        return rotate(stored_rotated(values, dtype, head_dim), head_dim, back=True)
    if dtype == "q8_0":
        codes, scales = blocks_of(values)
        with np.errstate(invalid="ignore"):
            return (codes * scales.astype(np.float64)).reshape(values.shape)
    if dtype == "f16":
        return values.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        words = values.view(np.uint32)
        rounded = (words + np.uint32(0x7FFF) + (words >> 16 & 1)) & np.uint32(0xFFFF0000)
        return rounded.view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def stored_rotated(values: Array, dtype: str, head_dim: int) -> Array:
    """Returns the rotated values that a cache of this type stores, in float64."""
    return decoded(*codes_of(rotate(values, head_dim), ROTATED[dtype]), ROTATED[dtype])


def multiplied(q: Array, dtype: str, head_dim: int = 0) -> Array:
    """Returns the query as the CPU multiplies it: in the format of a bfloat16 or quantized cache."""
    if dtype in ROTATED:
        return rotate(multiplied(rotate(q, head_dim), "q8_0"), head_dim, back=True)
    if dtype != "q8_0":
        return stored(q, dtype) if dtype == "bf16" else q.astype(np.float64)
    blocks = q.reshape(q.shape[0], -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    codes = np.rint(blocks * (np.float32(127) / largest))
    return (codes.astype(np.float64) * (largest / np.float32(127))).reshape(q.shape)


def stored_on_gpu(values: Array, dtype: str) -> Array:
    """Returns the cached values as a GPU multiplies them: the products of codes and scales are rounded to float16."""
    held = stored(values, dtype)
    return held.astype(np.float16).astype(np.float64) if dtype == "q8_0" else held


@dataclass(frozen=True)
class Heads:
    """The layout of heads in a row, and the options of attention that change scores."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float
    soft_cap: float = 0
    window: int = 0
    sinks: tuple[float, ...] = ()  # of each head: the score of a key whose value is 0
    ahead: int = 0  # the most keys after its own that a row with an end sees

    @property
    def group(self) -> int:
        return self.n_heads // self.n_kv_heads

    def q(self, rows: Array, head: int) -> Array:
        return rows[:, head * self.head_dim : (head + 1) * self.head_dim].astype(np.float64)

    def kv(self, rows: Array, head: int) -> Array:
        """Returns the columns of the kv head that a query head reads."""
        return rows[:, head // self.group * self.head_dim : (head // self.group + 1) * self.head_dim]


def multiplied_on_gpu(q: Array, dtype: str, heads: Heads) -> Array:
    """Returns the query as a GPU multiplies it: scaled for scores in base 2, in the 16-bit type of the cache."""
    factor = np.float32(heads.scale) * np.float32(np.log2(np.e))
    unit = np.log(2) / np.float64(np.float32(heads.scale))
    if heads.soft_cap:
        factor *= np.float32(2) / np.float32(heads.soft_cap)
        unit *= np.float64(np.float32(heads.soft_cap)) / 2
    return stored(q * factor, "bf16" if dtype == "bf16" else "f16") * unit


def softmax(
    heads: Heads,
    q: Array,
    first_position: int,
    k: Array,
    *,
    ends: Sequence[int] = (),
    starts: Sequence[int] = (),
) -> Iterator[Array]:
    """Yields for each head its weights by row and position.

    q: rows at first_position, first_position + 1 …; k: the sequence's rows from position 0; ends: the position behind
    the last key that each row may see, or nothing; starts: the first key in the window of each row, or nothing.
    """
    positions = first_position + np.arange(q.shape[0])[:, None]
    keys = np.arange(k.shape[0])[None, :]
    seen = keys <= positions + heads.ahead if ends else keys <= positions
    if ends:
        seen &= (keys < np.array(ends)[:, None]) | (keys <= positions)
    if heads.window:
        seen &= keys >= np.array(starts)[:, None] if starts else keys > positions - heads.window
    for head in range(heads.n_heads):
        scores = heads.q(q, head) @ heads.kv(k, head).T * np.float64(np.float32(heads.scale))
        if heads.soft_cap:
            scores = heads.soft_cap * np.tanh(scores / heads.soft_cap)
        scores = np.where(seen, scores, -np.inf)
        greatest = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - greatest)
        of_sink = np.exp(np.float64(np.float32(heads.sinks[head])) - greatest) if heads.sinks else 0
        yield weights / (weights.sum(axis=1, keepdims=True) + of_sink)


def attention(
    heads: Heads,
    q: Array,
    first_position: int,
    k: Array,
    v: Array,
    *,
    ends: Sequence[int] = (),
    starts: Sequence[int] = (),
) -> Array:
    """Returns the averages of v, whose rows are those of k, under the weights."""
    weights = softmax(heads, q, first_position, k, ends=ends, starts=starts)
    return np.concatenate([found @ heads.kv(v, head) for head, found in enumerate(weights)], axis=1)


def spread(
    heads: Heads,
    q: Array,
    first_position: int,
    k: Array,
    v: Array,
    *,
    ends: Sequence[int] = (),
    starts: Sequence[int] = (),
) -> Array:
    """Returns the averages of |v - output| under the weights."""
    spreads = []
    for head, weights in enumerate(softmax(heads, q, first_position, k, ends=ends, starts=starts)):
        values = heads.kv(v, head).astype(np.float64)
        rows = []
        for weight, output in zip(weights, weights @ values, strict=True):
            seen = slice(np.argmax(weight > 0), len(weight) - np.argmax(weight[::-1] > 0))
            rows.append(weight[seen] @ np.abs(values[seen] - output))
        spreads.append(np.stack(rows))
    return np.concatenate(spreads, axis=1)
