"""Compares the kernels outside the matrix list with float64: their errors, as a fraction of the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_check.rows import tests_support

Array = np.ndarray
Errors = dict[str, float]  # by case
KV_TYPES = ("f16", "bf16", "q8_0")
TABLE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "f8_e4m3", "iq4_nl")
EPSILON = 1e-5
HEAD_DIMS = (64, 128, 256)  # each has its own kernels


@dataclass(frozen=True)
class Asked:
    """A device, and whether to use small cases: on the emulated device and under a sanitizer."""

    kind: str
    is_small: bool
    seed: int = 0

    @property
    def device(self) -> Any:
        devices = tests_support("kernels.devices")
        return devices.GPUS[devices.GPU_KINDS.index(self.kind)]

    def normal(self, *shape: int) -> Array:
        return np.random.default_rng([self.seed, *shape]).normal(size=shape).astype(np.float32)

    def sizes(self, small: tuple[int, ...], large: tuple[int, ...]) -> tuple[int, ...]:
        return small if self.is_small else large


def part(actual: Array, expected: Array, bound: Array | float) -> float:
    """Returns the largest error as a fraction of the bound. NaN, and any error against a bound of 0, are infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(actual == expected, 0, np.abs(actual.astype(np.float64) - expected) / bound)
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max())


def same(actual: Array, expected: Array) -> float:
    return 0.0 if actual.tobytes() == expected.tobytes() else np.inf


def worst(parts: list[tuple[str, float]]) -> Errors:
    found: Errors = {}
    for name, error in parts:
        found[name] = max(found.get(name, 0.0), error)
    return found


def norm(asked: Asked) -> Errors:
    """Checks norms, and the activation rows that they write for the next product."""
    oracle, tolerances = tests_support("oracles.op_oracles").rms_norm_oracle, tests_support("oracles.tolerances")
    weights, device, parts = tests_support("kernels.weights"), asked.device, []
    for width in asked.sizes((80, 288), (8, 257, 2048, 4096, 14336)):
        x, y, weight = asked.normal(3, width), asked.normal(4, width)[1:], asked.normal(1, width)[0]
        for name, total, out in (
            ("norm", x, device.rms_norm(x, weight, EPSILON)),
            ("norm of a sum", x + y, device.add_norm(x, y, weight, EPSILON)[1]),
        ):
            bound = tolerances.rms_norm(total.astype(np.float64), weight.astype(np.float64))
            parts.append((name, part(out, oracle(total, weight, EPSILON), bound)))
    for dtype in ("q8_0", "q4_k", "bf16", "f16"):
        x, weight = asked.normal(5, 512), asked.normal(1, 512)[0]
        matrix = (dtype, weights.random_weight(dtype, 40, 512).file, None)
        announced, plain = (
            device.norm_linear(x, weight, 40, matrix, announced=announced) for announced in (True, False)
        )
        parts.append(("rows for a product", same(announced, plain)))
    return worst(parts)


def rope(asked: Asked) -> Errors:
    oracle, tolerances, parts = tests_support("oracles.op_oracles").rope_oracle, tests_support("oracles.tolerances"), []
    positions = np.array([0, 7, 8191, 2**20], np.int32)
    for head_dim in asked.sizes((64,), HEAD_DIMS):
        frequencies = 10000.0 ** (-np.arange(head_dim // 2) * 2 / head_dim)
        angles = asked.device.rope_angles(positions, frequencies.tolist())
        exact = positions[:, None] * frequencies
        expected = np.concatenate([np.cos(exact), np.sin(exact)], axis=1)
        parts.append(("angles", part(angles, expected, tolerances.ANGLE)))
        for style in ("adjacent", "halves"):
            x = asked.normal(4, 3 * head_dim)
            parts.append((style, part(asked.device.rope(x, head_dim, style, angles),
                                      *oracle(x, angles, head_dim, style))))  # fmt: skip
    return worst(parts)


def kv_append(asked: Asked) -> Errors:
    """Checks that attention to one token returns its value, and that the append rotates as a prior rotation does."""
    parts = []
    for dtype in KV_TYPES:
        parts.append((dtype, attention_error(asked, dtype, 64, [(1, 1)] * asked.sizes((3,), (20,))[0])))
        parts.append((f"{dtype} rotated", rotated_on_the_way(asked, dtype)))
    return worst(parts)


def rotated_on_the_way(asked: Asked, dtype: str) -> float:
    from imp_service import _testing as core

    device, head_dim, sequences = asked.device, 64, [(3, 7, [2]), (1, 33, [3, 0, 1])]
    angles = device.rope_angles(np.array([7, 8, 9, 33], np.int32), (0.7 ** np.arange(20)).tolist())
    q, k, v = asked.normal(4, 5 * head_dim), asked.normal(4, 2 * head_dim), asked.normal(5, 2 * head_dim)[1:]
    weight = asked.normal(1, head_dim)[0]
    together, apart = (
        core.Cache(device, dtype=dtype, n_layers=2, n_kv_heads=2, head_dim=head_dim, n_blocks=4) for _ in range(2)
    )
    turned = together.rope_append(1, sequences, (q, k, v), False, angles, weight, weight, EPSILON)
    apart.append(1, sequences, device.rope(k, head_dim, "halves", angles, weight, EPSILON), v)
    if together.memory() != apart.memory():
        return np.inf
    return same(turned, device.rope(q, head_dim, "halves", angles, weight, EPSILON))


def attention_error(asked: Asked, dtype: str, head_dim: int, shapes: list[tuple[int, int]]) -> float:
    """Returns the attention error of sequences of (tokens, query rows)."""
    cases, oracle = tests_support("kernels.attention_cases"), tests_support("oracles.attention_oracle")
    heads = oracle.Heads(n_heads=4, n_kv_heads=2, head_dim=head_dim, scale=head_dim**-0.5)
    sequences, n_blocks = cases.make_sequences(np.random.default_rng(head_dim), heads, shapes)
    cache = cases.make_cache(asked.device, heads, dtype, n_blocks, sequences)
    actual = cases.attend_all(cache, heads, sequences)
    return float(np.nan_to_num(cases.Expected(heads, dtype, sequences, asked.device).worst(actual), nan=np.inf))


def attention_decode(asked: Asked) -> Errors:
    shapes = [(3, 1), (290, 1)] if asked.is_small else [(1, 1), (300, 1), (4097, 1), (256, 1)]
    return worst([(f"{dtype} {dim}", attention_error(asked, dtype, dim, shapes))
                  for dtype in KV_TYPES for dim in HEAD_DIMS])  # fmt: skip


def attention_prefill(asked: Asked) -> Errors:
    shapes = [(20, 18)] if asked.is_small else [(40, 40), (700, 300), (1, 1)]
    return worst([(f"{dtype} {dim}", attention_error(asked, dtype, dim, shapes))
                  for dtype in KV_TYPES for dim in HEAD_DIMS])  # fmt: skip


def embedding(asked: Asked) -> Errors:
    """Checks embedding rows from the file's layout and from tiles."""
    weights, parts = tests_support("kernels.weights"), []
    tokens = np.array([36, 0, 17, 15, 16, 17], np.int32)
    for dtype in TABLE_TYPES:
        table = weights.random_weight(dtype, 37, asked.sizes((512,), (4096,))[0])
        for overrides in ([("w", "reference")], []):
            found = asked.device.embed(tokens, dtype, table.file, 37, table.values.shape[1], 0.75, overrides)
            parts.append((dtype, same(found, table.values[tokens] * np.float32(0.75))))
    return worst(parts)


def elementwise(asked: Asked) -> Errors:
    oracles, tolerances = tests_support("oracles.op_oracles"), tests_support("oracles.tolerances")
    device, parts = asked.device, []
    for width in asked.sizes((70,), (5, 4096, 14336)):
        x, y, gates = asked.normal(4, width), asked.normal(5, width)[1:], asked.normal(4, 1)
        wide_x, wide_y, factors = x.astype(np.float64), y.astype(np.float64), 1 / (1 + np.exp(-gates.astype(float)))
        capped = 3 * np.tanh(wide_x / 3)
        silu, gelu = oracles.silu_oracle(wide_x, wide_y), oracles.gelu_oracle(wide_x, wide_y)
        rows = np.array([3, 0, 0], np.int32)
        parts += [
            ("add", same(device.add(x, y), x + y)),
            ("gather", same(device.gather_rows(x, rows), x[rows])),
            ("cap", part(device.soft_cap(x, 3.0), capped, tolerances.elementwise(capped, 8))),
            ("silu", part(device.gated_activation("silu", x, y), silu,
                          tolerances.elementwise(silu, 8) * (1 + np.abs(wide_x)))),
            ("gelu_tanh", part(device.gated_activation("gelu_tanh", x, y), gelu, tolerances.gelu_tanh(wide_x, wide_y))),
            ("gated", part(device.add_gated(x, y, gates), wide_x + factors * wide_y, tolerances.rounding_of_sum(8)
                           * (np.abs(wide_x) + np.abs(factors * wide_y)) * (1 + np.abs(gates)))),
        ]  # fmt: skip
    return worst(parts)


def experts(asked: Asked) -> Errors:
    """Checks the chosen experts, their weights, and the sum of their outputs."""
    from imp_service import _testing as core

    tolerances, weights = tests_support("oracles.tolerances"), tests_support("kernels.weights")
    expected_weights, parts = tests_support("oracles.numpy_transformer").expert_weights, []
    for n_experts, n_used in ((4, 2),) if asked.is_small else ((4, 2), (128, 8), (257, 33)):
        scores = 3 * asked.normal(19, n_experts)
        chosen, found, _, _ = core.route_experts(asked.device, scores, n_used)
        by_score = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :n_used]
        exact = np.take_along_axis(expected_weights(scores.astype(np.float64), n_used, True), by_score, axis=1)
        bound = tolerances.elementwise(exact, n_experts + 6) * (1 + np.abs(scores).max())
        parts += [
            ("chosen", 0.0 if np.array_equal(chosen, by_score) else np.inf),
            ("weights", part(found, exact, bound)),
        ]
    files = [weights.random_weight("q8_0", 40, 64, seed=i).file for i in range(4)]
    scores = asked.normal(9, 4)
    _, shares, _, _ = core.route_experts(asked.device, scores, 2)
    products, mixed = core.expert_products(asked.device, asked.normal(9, 64), scores, 2, ["q8_0"] * 4, files, 40)
    terms = shares[:, :, None] * products.astype(np.float64)
    parts.append(("mixed", part(mixed, terms.sum(axis=1), tolerances.rounding_of_sum(20) * np.abs(terms).sum(axis=1))))
    return worst(parts)


def sampling_kernels(asked: Asked) -> Errors:
    """Checks the argmax of adjusted logits, draws against the definition, and log probabilities."""
    from imp_service import _testing as core

    oracle, tolerances, requests_of = (
        tests_support(name) for name in ("oracles.sampling_oracle", "oracles.tolerances", "kernels.sampler_requests")
    )
    rng, n = np.random.default_rng(asked.seed), asked.sizes((6,), (40,))[0]
    rows = requests_of.normal_rows(3, n, vocab=asked.sizes((300,), (20000,))[0])
    greedy = [{"row": i, **requests_of.random_fields(rng, rows.shape[1]), "temperature": 0.0} for i in range(n)]
    expected = [int(np.argmax(oracle.adjusted(rows[i], fields))) for i, fields in enumerate(greedy)]
    found = [token for _, token, *_ in core.sample(asked.device, rows, greedy)]
    options: list[dict[str, float]] = [{}, {"top_k": 9}, {"top_p": 0.8}, {"min_p": 0.05}, {"typical_p": 0.6}]
    random = [{"row": i, "seed": i, "index": 3, "temperature": 1.3, **options[i % 5]} for i in range(n)]
    drawn, exact = [], []
    for i, fields in enumerate(random):
        ids, weights = core.SamplerRow("generic", rows[i]).support(fields)
        exact.append(oracle.draw(ids, weights, core.draw_bits(i, 0, 3)))
    drawn = [token for _, token, *_ in core.sample(asked.device, rows, random)]
    wide = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
    logprobs = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    scored = core.score(asked.device, rows, [(i, 7) for i in range(n)], n_candidates=2)
    bound = tolerances.SAMPLER_LOGPROB * (1 + np.abs(logprobs[:, 7]))
    return {
        "greedy": 0.0 if found == expected else np.inf,
        "drawn": 0.0 if drawn == exact else np.inf,
        "scores": part(np.array([logprob for _, _, logprob, _ in scored]), logprobs[:, 7], bound),
        "candidates": 0.0 if all([token for token, _ in row[3]] == oracle.order_of(rows[i])[:2].tolist()
                                 for i, row in enumerate(scored)) else np.inf,
    }  # fmt: skip


def activation_rows(asked: Asked) -> Errors:
    """Checks activation rows in every format; the bound is half a step of the format."""
    from imp_service import _testing as core

    prepared, parts = tests_support("kernels.prepared_rows"), []
    for k in asked.sizes((288,), (32, 4096, 14336 + 32)):
        x = tests_support("kernels.weights").random_rows(5, k)
        wide = np.pad(x.astype(np.float64), ((0, 0), (0, prepared.padded(k) - k)))
        rows = {name: core.cuda_prepare_rows(asked.kind, x, name).reshape(5, -1) for name in prepared.FORMATS}
        codes, scales, sums = prepared.int8_parts(rows["q8_rows"], k)
        steps = scales.repeat(prepared.BLOCK, axis=1).astype(np.float64)
        exact_sums = codes.reshape(*scales.shape, 2, 16).sum(axis=-1, dtype=np.int16)
        parts += [("q8_rows", part(codes * steps, wide, 0.5001 * steps)), ("sums", same(sums, exact_sums))]
        for name in ("f16_rows", "f16_even_odd"):
            halves, factors = prepared.float16_parts(rows[name], k, name)
            bound = np.abs(wide) * 2.0**-11 + 2.0**-25 * factors[:, None]
            parts.append((name, part(halves.astype(np.float64) * factors[:, None], wide, bound)))
        parts.append(("bf16_rows", part(prepared.bfloat16_values(rows["bf16_rows"], k), wide, np.abs(wide) * 2.0**-8)))
    return worst(parts)


@dataclass(frozen=True)
class Op:
    """A group of kernels, with the name of their source file."""

    errors: Callable[[Asked], Errors]
    tests: tuple[str, ...]  # below tests/; without them the group is not proven


OPS = {
    "norm": Op(norm, ("backend/test_ops.py", "backend/cuda/test_activation_rows.py")),
    "rope": Op(rope, ("backend/test_ops.py",)),
    "kv_append": Op(kv_append, ("backend/test_ops.py", "backend/test_attention.py")),
    "attention_decode": Op(attention_decode, ("backend/test_attention.py", "backend/cuda/test_attention.py")),
    "attention_prefill": Op(attention_prefill, ("backend/test_attention.py", "backend/cuda/test_attention.py")),
    "embedding": Op(embedding, ("backend/test_ops.py", "backend/cuda/test_reference.py")),
    "elementwise": Op(elementwise, ("backend/test_ops.py",)),
    "experts": Op(experts, ("backend/test_experts.py",)),
    "sampling_kernels": Op(sampling_kernels, ("backend/test_sampler.py", "backend/cuda/test_sampling.py")),
    "activation_rows": Op(activation_rows, ("backend/cuda/test_activation_rows.py",)),
}
