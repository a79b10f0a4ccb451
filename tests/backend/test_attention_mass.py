"""The attention that a query pays to each key: against float64, by hand, and the same bits however it is divided."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.attention_cases import BLOCK, NAN_BYTE
from support.kernels.bits import assert_same_bits
from support.kernels.devices import BEST, DEVICES, EMULATED
from support.oracles import tolerances
from support.oracles.attention_oracle import Heads, is_quantized, multiplied, stored

Array = np.ndarray
POOL = 13

GEOMETRIES = [
    Heads(n_heads=4, n_kv_heads=2, head_dim=80, scale=80**-0.5),
    Heads(n_heads=3, n_kv_heads=3, head_dim=64, scale=0.125, soft_cap=2.0),
    Heads(n_heads=71, n_kv_heads=1, head_dim=64, scale=0.125),
]
# First key, number of keys, position of the query.
RANGES = [(0, 1, 1), (0, 700, 700), (37, 300, 345), (256, 256, 600), (250, 5, 255)]


class Keys:
    """Keys of a sequence in layer 1 of a cache whose other bytes are NaN, and a query."""

    def __init__(self, device: core.Device, heads: Heads, dtype: str, n_keys: int) -> None:
        rng = np.random.default_rng(n_keys)
        width = heads.n_kv_heads * heads.head_dim
        self.heads, self.dtype = heads, dtype
        self.k = rng.normal(size=(n_keys, width)).astype(np.float32)
        self.q = rng.normal(size=(1, heads.n_heads * heads.head_dim)).astype(np.float32)
        n_blocks = -(-n_keys // BLOCK)
        self.blocks = rng.permutation(n_blocks + 1).tolist()[:n_blocks]
        self.cache = core.Cache(
            device, dtype=dtype, n_layers=2, n_kv_heads=heads.n_kv_heads, head_dim=heads.head_dim,
            n_blocks=n_blocks + 1,
        )  # fmt: skip
        self.cache.fill(NAN_BYTE)
        self.cache.append(1, [(n_keys, 0, self.blocks)], self.k, self.k)

    def mass(self, first: int, n: int, position: int, into: Array | None = None) -> Array:
        heads = self.heads
        found = self.cache.attention_mass(
            1, position, self.blocks, self.q, heads.n_heads, heads.scale, heads.soft_cap, first,
            [0.0] * n if into is None else into.tolist(),
        )  # fmt: skip
        return np.array(found, np.float32)

    def exact(self, first: int, n: int, *, pool: int = POOL, head_shift: int = 0) -> tuple[Array, float]:
        """Returns the means in float64, and the largest bound of a head."""
        heads = self.heads
        q = multiplied(self.q, self.dtype, heads.head_dim)
        k = stored(self.k, self.dtype, heads.head_dim)[first : first + n]
        greatest, bound = np.zeros(n), 0.0
        for head in range(heads.n_heads):
            own, keys = heads.q(q, head), heads.kv(k, (head + head_shift) % heads.n_heads)
            scores = (own @ keys.T)[0] * np.float64(np.float32(heads.scale))
            if heads.soft_cap:
                scores = heads.soft_cap * np.tanh(scores / heads.soft_cap)
            weights = np.exp(scores - scores.max())
            padded = np.pad(weights / weights.sum(), pool // 2)
            means = np.array([padded[i : i + pool].sum() / POOL for i in range(n)])
            greatest = np.maximum(greatest, means)
            bound = max(bound, tolerances.attention_mass(own, keys, heads.scale, heads.soft_cap, pool))
        return greatest, bound


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("heads", "dtype"),
    [
        pytest.param(heads, dtype, id=f"{heads.n_heads}-{heads.n_kv_heads}-{heads.head_dim}-{dtype}")
        for heads in GEOMETRIES
        for dtype in ("f32", "f16", "bf16", "q8_0", "rot8", "rot4", "rot3", "rot2")
        if not is_quantized(dtype) or heads.head_dim % 32 == 0
    ],
)
def test_spc_41_attention_mass_equals_float64(heads: Heads, dtype: str) -> None:
    keys = Keys(BEST, heads, dtype, 700)
    for first, n, position in RANGES:
        found = keys.mass(first, n, position)
        exact, bound = keys.exact(first, n)
        assert (np.abs(found - exact) <= bound * exact).all(), (first, n)
        if n < POOL:
            continue
        # The bound refuses a mean over other neighbours, and heads that read others' keys.
        assert (np.abs(found - keys.exact(first, n, pool=POOL - 2)[0]) > bound * exact).any()
        if heads.n_kv_heads > 1:
            assert (np.abs(found - keys.exact(first, n, head_shift=heads.group)[0]) > bound * exact).any()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "rot4"])
def test_spc_41_the_same_bits_whatever_the_threads_and_the_instruction_set(dtype: str) -> None:
    heads = next(each for each in GEOMETRIES if each.head_dim % 32 == 0)
    found = [Keys(device, heads, dtype, 700).mass(37, 650, 700) for device in DEVICES]
    for one, other in pairwise(found):
        assert_same_bits(one, other)


def test_spc_41_the_greatest_of_layers_is_kept() -> None:
    keys = Keys(BEST, GEOMETRIES[0], "f32", 300)
    found = keys.mass(0, 300, 300)
    before = np.roll(found, 40)
    assert_same_bits(keys.mass(0, 300, 300, before), np.maximum(found, before))


def peaked(*keys: int) -> Array:
    """Returns the mass of two heads, of which each looks at one key of 40 alone."""
    heads = Heads(n_heads=2, n_kv_heads=1, head_dim=8, scale=1.0)
    cache = core.Cache(BEST, dtype="f32", n_layers=1, n_kv_heads=1, head_dim=8, n_blocks=3)
    k = np.zeros((40, 8), np.float32)
    q = np.zeros((1, 16), np.float32)
    for head, key in enumerate(keys):
        k[key, head] = 1
        q[0, 8 * head + head] = 200
    cache.append(0, [(40, 0, [0, 1, 2])], k, k)
    return np.array(cache.attention_mass(0, 40, [0, 1, 2], q, heads.n_heads, 1.0, 0.0, 0, [0.0] * 40), np.float32)


def test_spc_41_means_are_taken_before_the_greatest_head_and_of_thirteen_at_the_ends_too() -> None:
    """Expected by hand: a weight of one is spread over 13 keys. Heads that overlap do not add up."""
    thirteenth = np.float32(1) / np.float32(13)
    expected = np.zeros(40, np.float32)
    expected[14:34] = thirteenth  # 20 ± 6 and 27 ± 6; the greatest head first would give 2 / 13 where both are near
    assert_same_bits(peaked(20, 27), expected)
    at_the_end = np.zeros(40, np.float32)
    at_the_end[:7] = at_the_end[33:] = thirteenth
    assert_same_bits(peaked(0, 39), at_the_end)


def test_spc_41_a_gpu_names_the_op_that_it_lacks() -> None:
    for device in EMULATED:
        heads = Heads(n_heads=2, n_kv_heads=1, head_dim=64, scale=1.0)
        cache = core.Cache(device, dtype="f16", n_layers=1, n_kv_heads=1, head_dim=64, n_blocks=1)
        q = np.zeros((1, heads.n_heads * 64), np.float32)
        with pytest.raises(Exception, match="cuda lacks the op attention_mass"):
            cache.attention_mass(0, 4, [0], q, heads.n_heads, 1.0, 0.0, 0, [0.0] * 4)
