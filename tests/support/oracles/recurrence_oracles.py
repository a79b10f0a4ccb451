"""Linear attention in float64, from the definition of the gated delta rule, and bounds for float32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from support.oracles import tolerances
from support.oracles.op_oracles import silu_oracle

Array = np.ndarray


def short_conv_oracle(inputs: Array, weight: Array) -> Array:
    """Returns the convolution's output. `inputs` [taps - 1 + n, channels] begin with those before the first row."""
    taps = weight.shape[0]
    windows = np.stack([inputs[t : inputs.shape[0] - taps + 1 + t] for t in range(taps)], axis=1).astype(np.float64)
    return silu_oracle(np.sum(windows * weight, axis=1), 1.0)


def short_conv_bound(inputs: Array, weight: Array) -> Array:
    """Bounds the error: the sum's roundings, which silu less than doubles, and those of silu itself."""
    taps = weight.shape[0]
    windows = np.stack([inputs[t : inputs.shape[0] - taps + 1 + t] for t in range(taps)], axis=1).astype(np.float64)
    return tolerances.rounding_of_sum(2 * taps + 6) * np.sum(np.abs(windows * weight), axis=1) + 1e-30


@dataclass
class DeltaOracle:
    """Computes one sequence. Options other than the defaults are deliberately wrong."""

    n_key_heads: int
    is_interleaved: bool
    rates: Array  # [value heads]
    biases: Array
    state: Array  # [value heads, key, value]
    with_lengths: bool = True
    with_strength: bool = True
    reads_before: bool = False

    def but(self, **changes: object) -> DeltaOracle:
        return replace(self, **changes)  # type: ignore[arg-type]

    def run(self, qkv: Array, steps: Array, strengths: Array) -> tuple[Array, Array, list[Array], list[Array]]:
        """Returns the outputs [n, heads · value], their bounds, the states after each row, and their bounds."""
        n_heads, key_dim, value_dim = self.state.shape
        qkv, steps, strengths = (each.astype(np.float64) for each in (qkv, steps, strengths))
        q, k, v = np.split(qkv, [self.n_key_heads * key_dim, 2 * self.n_key_heads * key_dim], axis=1)
        q, k = (each.reshape(-1, self.n_key_heads, key_dim) for each in (q, k))
        if self.with_lengths:
            q, k = (each / np.sqrt(np.sum(each**2, axis=-1, keepdims=True) + 1e-6) for each in (q, k))
        q = q / np.sqrt(key_dim)
        heads = np.arange(n_heads)
        of = heads % self.n_key_heads if self.is_interleaved else heads // (n_heads // self.n_key_heads)
        q, k, v = q[:, of], k[:, of], v.reshape(-1, n_heads, value_dim)
        exponents = self.rates * np.logaddexp(0, steps + self.biases)
        decays, betas = np.exp(exponents), 1 / (1 + np.exp(-strengths))
        if not self.with_strength:
            betas = np.ones_like(betas)
        state, drift = self.state.astype(np.float64), np.zeros((n_heads, value_dim))
        outs, out_bounds, states, state_bounds = [], [], [], []
        for row in range(len(qkv)):
            before = state
            decay, beta = decays[row][:, None], betas[row][:, None]
            change = beta * (v[row] - decay * np.einsum("hk,hkv->hv", k[row], state))
            state = decay[..., None] * state + k[row][:, :, None] * change[:, None]
            drift = drift_after(drift, before, v[row], decay, exponents[row][:, None])
            read = before if self.reads_before else state
            outs.append(np.einsum("hk,hkv->hv", q[row], read).reshape(-1))
            length = np.linalg.norm(q[row], axis=-1, keepdims=True)
            rounding = tolerances.rounding_of_sum(2 * key_dim + 8)
            out_bounds.append((length * (drift + rounding * np.linalg.norm(state, axis=1))).reshape(-1) + 1e-30)
            states.append(state)
            state_bounds.append(np.broadcast_to(drift[:, None], state.shape))
        return np.array(outs), np.array(out_bounds), states, state_bounds


def drift_after(drift: Array, before: Array, v: Array, decay: Array, exponent: Array) -> Array:
    """Bounds the norm of each column's error after a row. The exact update never increases an error: k has length 1
    and the strength is at most 1. The rounded update adds the roundings of k's length, of a sum over the key, of the
    decay and of the update, all relative to terms no larger than v and the column together.
    """
    key_dim = before.shape[1]
    size = np.abs(v) + decay * np.linalg.norm(before, axis=1)
    of_decay = (4 * np.abs(exponent) + 4) * tolerances.FLOAT32_ROUNDING
    return drift + (tolerances.rounding_of_sum(4 * key_dim + 16) + 2 * of_decay) * size
