"""How far correct results may be from float64: bounds derived from the number of terms, the terms and the types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

# Half a unit in the last place of 1: the largest relative error of one float32 rounding.
FLOAT32_ROUNDING = float(np.finfo(np.float32).eps) / 2
BFLOAT16_ROUNDING = 2.0**-8
FLOAT16_ROUNDING = 2.0**-11
FLOAT32_TINY = float(np.finfo(np.float32).tiny)

# The contracts' bound for kernels with int8 activations, of the root mean square of a row's outputs; the error is
# taken as a root mean square too. Uniform steps of (about 2.2 sigma of 32 normal values) / 127 have 0.5 %.
INT8_ACTIVATIONS_RMS = 1.5e-2
# The same bound: with 8 significant bits an error is uniform within 2^-8 of the power of two below each activation, so
# at most 2^-8 / sqrt(3) of the activation.
BFLOAT16_ACTIVATIONS_RMS = 2.0**-8
FLOAT16_ACTIVATIONS_RMS = 2.0**-11

# The contracts' bound for log probabilities (GEN-26, SMP-22): float32 logits of up to about 100 have steps of 1e-5, and
# the log-sum-exp adds a few.
LOGPROB = 1e-4
# The contracts' bound for rotary angles (GEN-22).
UNIT_CIRCLE = 1e-6
# The contracts' distance of two tokens below which different rounding may draw either (DET-12).
SEQUENCES_AGREE = 1e-2
# The contracts' bound for the length of a vector of a text (EMB-4).
UNIT_LENGTH = 1e-6
# Similarities that a page prints with four digits: half of the last one, and a float32 sum.
PRINTED_SIMILARITY = 6e-5
# 1 less the cosine of a vector of MiniLM and the same in float32 (EMB-14). Measured on 1,000 docstrings: F32 beside
# sentence-transformers 7e-13, F16 2.8e-7, BF16 2.2e-5, Q8_0 6.9e-4; with Q8_0, 98 % of ten nearest neighbours stay.
COSINE = {"f32": 1e-11, "f16": 1e-6, "bf16": 1e-4, "q8_0": 1.5e-3}
# The same beside llama.cpp with the same file (EMB-3), which reads GELU from a table of F16: measured 2.0e-6, 2.0e-6
# and 2.2e-4.
LLAMA_CPP_COSINE = {"f32": 1e-5, "f16": 1e-5, "q8_0": 5e-4}
KEPT_NEIGHBOURS = {"f32": 1.0, "f16": 0.995, "bf16": 0.99, "q8_0": 0.97}
# Probabilities of labels are products of a few float64, of which one may be left of a difference (DEC-1, DEC-5).
LABELS = 1e-10
# One unit in the last place of 1 (DEC-2), and the error of the logarithm of a sum of 64 bits.
LAST_PLACE = 2.0**-52
LOG_OF_SUM = 2.0**-51
# The built-in model's int8 activations change logits of up to 30 by less than a hundredth of them: log odds of labels.
LOG_ODDS = 0.3
# The same of a model of 135M parameters with weights of 4 bits.
REAL_LOG_ODDS = 0.6
# Scores of a unigram tokenizer are sums of a few float32.
UNIGRAM_SCORE = 1e-6
# Two float64 forwards of the built-in models, which differ in the order of their sums: logits of up to 30 in steps of
# 4e-15 after a few thousand roundings; the golden margins themselves are written with six decimals.
GOLDEN_MARGIN = 1e-6
# The same bound for a sum of log likelihoods of one sign, relative.
GOLDEN_NATS = 1e-9
# Expected outputs in a time are sums of a few terms in another order.
DRAFT_RATE = 1e-9
# Float64 sums of 50 terms, in two ways.
DIVERGENCE = 1e-9
# The same for means of divergences over a vocabulary, of float32 logits.
MEAN_DIVERGENCE = 1e-6
# Score statistics whose likeliest share is found on a grid of 400,000.
SCORE_ON_GRID = 2e-3
# Bounds by sixty bisections and by a closed form, in points.
BISECTED_POINTS = 1e-6
# Rotations of vectors of at most 256 elements in float64: the contracts' bound.
ROTATION_BACK = 1e-6
# The contracts' bounds for codes of Gaussian heads: the scale is a float16; the distortion is that of 4,000 heads.
SCALE_ROUNDING = 2.0**-11
DISTORTION = 0.03
SLOPE = 1e-3
# The divergence of logits that were shifted in float32: each has an error of 2^-21 at most, and it goes in squared.
SHIFTED_LOGITS = 1e-6
# 40 halvings of [0, 1] in float64.
BREAK_EVEN = 1e-6
# The share of a step's time by which the fitted line of its costs may differ from the line that made the steps.
STEP_COST = 0.05
# The same for the costs of prompts, whose chunks' times are up to 5 % off.
PROMPT_COST = 0.25
# A choice by importance is sure where the means of chunks differ by more than this share of the greatest one: two
# layers in float32 are off by a few hundred roundings.
IMPORTANCE_MARGIN = 1e-5
# A distilled draft predicts the target's token at least every other time; an untrained one, one time in 2048.
DRAFT_AGREEMENT = 0.5
# Random weights: f16 scales within 2^-11, the deviation of uniform integers within 1 %, of 49,152 draws within 1 %.
SYNTHETIC_DEVIATION = 0.03


def standard_errors(deviation: float, n: int, count: float = 5) -> float:
    """Returns how far the mean of n independent draws may be from its expectation."""
    return count * deviation / n**0.5


def rounding_of_sum(n_roundings: int) -> float:
    """Bounds the effect of n successive roundings, relative to the sum of the terms' magnitudes (Higham's gamma)."""
    drift = n_roundings * FLOAT32_ROUNDING
    assert drift < 1
    return drift / (1 - drift)


def sum_of_products(x: Float64s, w: Float64s) -> Float64s:
    """Bounds x · wᵀ with exact float32 factors and one fma per term: k roundings, each with a flushed denormal."""
    k = x.shape[1]
    return rounding_of_sum(k) * (np.abs(x) @ np.abs(w).T) + k * FLOAT32_TINY


def sum_of_blocks(x: Float64s, w: Float64s, block: int = 32, n_sums: int = 1) -> Float64s:
    """Bounds sums of exact integer dot products of blocks, each then scaled: a rounding for the dot as a float, one for
    the product of scales, one per fma. With minima each block adds two numbers (`n_sums`), and |w| includes both.
    """
    n_blocks = x.shape[1] // block
    flushed = 2 * n_blocks * FLOAT32_TINY * 128**2 * block
    return rounding_of_sum(n_sums * n_blocks + 2) * (np.abs(x) @ np.abs(w).T) + flushed


def sum_of_slices(x: Float64s, w: Float64s, n_sums: int = 1) -> Float64s:
    """Bounds the same as sum_of_blocks, with terms in four chains of each of eight slices; the last slice is padded."""
    n_blocks = -(-x.shape[1] // 256) * 8
    flushed = 2 * n_blocks * FLOAT32_TINY * 128**2 * 32
    # Roundings: the dot, the scales' product; the chain; two sums of chains, those of slices, the bias.
    n_roundings = 2 + n_sums * (-(-n_blocks // 8 // 8) * 2) + 2 + 8 + 1
    return rounding_of_sum(n_roundings) * (np.abs(x) @ np.abs(w).T) + flushed


def matrix_instructions(x: Float64s, w: Float64s) -> Float64s:
    """Bounds sums of exact products of 16-bit elements: instructions align and truncate the terms, each by at most two
    roundings; then the sums of slices, a factor, the bias.
    """
    k = x.shape[1]
    return rounding_of_sum(2 * k + 10) * (np.abs(x) @ np.abs(w).T) + k * FLOAT32_TINY


def float16_weights(x: Float64s, w: Float64s, n_roundings: int) -> Float64s:
    """Bounds weights that the kernel converts to float16. Each of the roundings is at most 2^-11 of |w|: the last is of
    the weight itself, earlier ones of its scale and its minimum. |w| includes both. A value too small for a normal
    float16 is an integer times a subnormal one, and exact.
    """
    of_weights = (1 + FLOAT16_ROUNDING) ** n_roundings - 1
    return of_weights * (np.abs(x) @ np.abs(w).T) + (1 + of_weights) * matrix_instructions(x, w)


def rounded_weights(weights: Float64s, scales: Float64s, levels: Float64s, run: int = 64) -> Float64s:
    """Bounds weights · (scales · levels) where a kernel rounds the products of weights and scales to 255 steps of the
    greatest in each run of tokens: by half a step each, or by all of a smaller product. weights: [rows, tokens];
    scales: [tokens, blocks]; levels: [tokens, blocks, elements of a block].
    """
    bound = np.zeros((len(weights), *levels.shape[1:]))
    for first in range(0, weights.shape[1], run):
        here = slice(first, first + run)
        products = weights[:, here, None] * scales[None, here]
        steps = products.max(axis=1, keepdims=True) / 255
        bound += np.einsum("rtb,tbe->rbe", np.minimum(products, steps / 2), np.abs(levels[here]))
    # The kernel's products and steps are rounded themselves.
    return bound.reshape(len(weights), -1) * (1 + 2.0**-10)


def head_rotation(magnitudes: Float64s, group: int) -> Float64s:
    """Bounds the rounding of a rotation, as seen after the exact rotation back: sums of a group's elements over the
    root of their number, in log2(group) additions and two factors, and such sums again.
    """
    sums = magnitudes.reshape(-1, group).sum(axis=1, keepdims=True)
    n_roundings = group.bit_length() + 1
    return rounding_of_sum(n_roundings) * np.broadcast_to(sums, (sums.shape[0], group)).reshape(magnitudes.shape)


def bfloat16_activations(x: Float64s, w: Float64s) -> Float64s:
    """Bounds activations that the kernel rounds to 8 bits, each by at most 2^-8 of itself, and the sum's errors."""
    return BFLOAT16_ROUNDING * (np.abs(x) @ np.abs(w).T) + (1 + BFLOAT16_ROUNDING) * sum_of_products(x, w)


def int8_activations(x: Float64s, w: Float64s, block: int = 32) -> Float64s:
    """Bounds float activations that the kernel quantizes: half a step per element, and the sum's errors.

    A step is max|x| / 127 of the block; the scale, its inverse and their product are rounded once each, which moves a
    value of up to 127 steps by less than 127 · 3 roundings.
    """
    m, k = x.shape
    largest = np.abs(x).reshape(m, k // block, block).max(axis=2)
    steps = largest / 127 * (0.5 + 127 * rounding_of_sum(3))
    weights = np.abs(w).reshape(w.shape[0], k // block, block).sum(axis=2)
    return steps @ weights.T + sum_of_blocks(x, w, block)


def rms_norm(x: Float64s, weight: Float64s) -> Float64s:
    """Bounds a norm: n fused squares of one sign shift the mean by gamma(n), its root by half; then five roundings."""
    n = weight.size
    runs = x.reshape(*x.shape[:-1], -1, n)
    mean = np.mean(runs**2, axis=-1, keepdims=True)
    exact = np.abs(runs * weight) / np.sqrt(mean + FLOAT32_TINY)
    flushed = FLOAT32_TINY * (1 + np.abs(weight))  # the scaled element, then the product
    return (exact * rounding_of_sum(n // 2 + 8) + flushed).reshape(x.shape)


def layer_norm(x: Float64s, weight: Float64s, bias: Float64s | None) -> Float64s:
    """Bounds a norm whose mean is off by gamma(n) of the elements' magnitude, and shifts every deviation by that."""
    n = weight.size
    deviations = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt(np.mean(deviations**2, axis=-1, keepdims=True) + FLOAT32_TINY)
    of_mean = np.mean(np.abs(x), axis=-1, keepdims=True) * rounding_of_sum(n)
    moved = of_mean + np.abs(deviations) * (rounding_of_sum(n // 2 + 8) + of_mean / spread)
    normed = np.abs(weight) / spread * moved
    last = 0 if bias is None else (np.abs(deviations * weight) / spread + np.abs(bias)) * rounding_of_sum(1)
    return normed + last + FLOAT32_TINY * (1 + np.abs(weight))


def elementwise(exact: Float64s, n_roundings: int) -> Float64s:
    """Bounds a chain of products, quotients and our own exp or tanh (2 roundings each) without cancellation."""
    return np.abs(exact) * rounding_of_sum(n_roundings) + 2 * FLOAT32_TINY


def gelu_tanh(gate: Float64s, up: Float64s) -> Float64s:
    """Bounds gelu. 1 + tanh(t) cancels for t < 0, so errors of tanh and its argument are relative to 1."""
    return np.abs(gate * up) * rounding_of_sum(12) + 2 * FLOAT32_TINY


def gelu_erf(x: Float64s) -> Float64s:
    """Bounds gelu by erf. 1 + erf(t) cancels for t < 0, so errors are relative to 1: 4 roundings of erf, one of its
    argument, since t · erf'(t) < 1 / 2, and 2 of the sum, of which half counts; then two products of up to |x|.
    """
    return np.abs(x) * rounding_of_sum(8) + 2 * FLOAT32_TINY


def rotation(a: Float64s, b: Float64s) -> Float64s:
    """Bounds a·cos ∓ b·sin: the roundings of cosine and sine, of a product and of an fma."""
    return (np.abs(a) + np.abs(b)) * rounding_of_sum(4) + FLOAT32_TINY


# Cosine and sine of an angle computed in float64, rounded once; the contracts ask for less than 1e-6.
ANGLE = 2 * FLOAT32_ROUNDING


def attention(q: Float64s, k: Float64s, v: Float64s, scale: float, soft_cap: float) -> float:
    """Bounds one head: q [n, d], k and v [m, d] as the cache holds them.

    A score is a sum of d products, scaled (and capped: tanh has slope at most 1, and a few roundings of the cap); its
    error enters exp as it is. Numerator and denominator both carry it, with the roundings of m additions and of the
    merges of m / 256 splits.
    """
    terms = float((np.abs(q) @ np.abs(k).T).max()) * scale
    score = terms * rounding_of_sum(q.shape[1] + 2) + soft_cap * rounding_of_sum(8)
    largest_score = terms if soft_cap == 0 else min(terms, soft_cap)
    weight = score + largest_score * rounding_of_sum(2) + rounding_of_sum(k.shape[0] + 8 * (k.shape[0] // 256 + 1))
    return float(2 * np.expm1(weight) * np.abs(v).max() + FLOAT32_TINY)


def attention_mass(q: Float64s, k: Float64s, scale: float, soft_cap: float, pool: int) -> float:
    """Bounds means of `pool` softmax weights of one head, relative to each: q [1, d], k [m, d] as in attention()."""
    terms = float((np.abs(q) @ np.abs(k).T).max()) * scale
    score = terms * rounding_of_sum(q.shape[1] + 2) + soft_cap * rounding_of_sum(8)
    largest_score = terms if soft_cap == 0 else min(terms, soft_cap)
    weight = score + largest_score * rounding_of_sum(2) + rounding_of_sum(k.shape[0] + 8)
    return float(2 * np.expm1(weight) + rounding_of_sum(pool + 1))


def bfloat16_weights(spread: Float64s) -> Float64s:
    """Bounds the error of softmax weights rounded to 8 bits, from their average `spread` of |v - output|.

    An output is a quotient of sums of the same rounded weights, so a common factor cancels, and each weight leaves at
    most 2^-8 of its |v - output|. To second order, the denominator is off by as much.
    """
    return BFLOAT16_ROUNDING / (1 - BFLOAT16_ROUNDING) * spread


def gpu_weights(spread: Float64s, dtype: str, n_keys: int, largest_value: float) -> Float64s:
    """Bounds the error of weights in 16 bits relative to the greatest; float16 has steps of 2^-24 below 2^-14 of it."""
    rounding = BFLOAT16_ROUNDING if dtype == "bf16" else 2.0**-11
    flushed = 0 if dtype == "bf16" else n_keys * 2.0**-25 * 2 * largest_value
    return rounding / (1 - rounding) * spread + flushed


# How far a cut of the sampler may differ between float64 and float32 weights: tests ignore rows closer to it.
SAMPLER_CUT = 1e-6

# Sums of up to 2^18 float32 exponentials by integers with 40 fractional bits, their logarithm, one rounding to float32.
SAMPLER_LOGPROB = 1e-6


def chi_square_limit(degrees: int, normal_quantile: float) -> float:
    """Returns Wilson and Hilferty's approximation of the quantile."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + normal_quantile * spread**0.5) ** 3


def divergence(logits: Float64s) -> float:
    """Bounds the divergence of two distributions with float32 logits, each rounded in its own term and in the sum."""
    largest = float(np.abs(logits).max())
    return 4 * largest * (1 + 2 * largest) * FLOAT32_ROUNDING


# Of vectors of texts, relative to their root mean square: two computations in float32, of layers that normalize.
VECTORS = 2e-5
