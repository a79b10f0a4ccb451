"""The sampler from its definition: adjustments in float32, kept sets in float64, draws in Python's integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from support.oracles import tolerances

Array = np.ndarray
FLOAT32_MOST = np.finfo(np.float32).max


def window(ids: Sequence[int], n: int) -> Sequence[int]:
    return ids[-n:] if n else ids


def longest_repeat(history: Sequence[int], token: int, breakers: Sequence[int]) -> int:
    """Returns the length of the longest suffix without a breaker that occurs earlier before the token; -1: none."""
    longest = -1
    for end in range(len(history)):
        if history[end] != token:
            continue
        length = 0
        while length < end and history[end - 1 - length] == history[-1 - length] not in breakers:
            length += 1
        longest = max(longest, length)
    return longest


def adjusted(row: Array, fields: dict[str, Any]) -> Array:
    """Applies steps 1 to 3, one id at a time."""
    logits = row.astype(np.float32).copy()
    history = list(fields.get("history", []))
    output = history[len(history) - fields.get("n_output", 0) :]
    recent = fields.get("penalty_window", 0)

    def put(token: int, value: np.float32) -> None:
        logits[token] = np.clip(value, -FLOAT32_MOST, FLOAT32_MOST)

    def known(ids: Sequence[int]) -> list[int]:
        return [token for token in ids if 0 <= token < len(row)]

    with np.errstate(over="ignore"):
        penalty = np.float32(fields.get("repetition_penalty", 1))
        for token in set(known(window(history, recent))) if penalty != 1 else ():
            put(token, logits[token] / penalty if logits[token] > 0 else logits[token] * penalty)
        frequency = np.float32(fields.get("frequency_penalty", 0))
        presence = np.float32(fields.get("presence_penalty", 0))
        for token, count in Counter(known(window(output, recent))).items() if frequency or presence else ():
            put(token, logits[token] - (frequency * np.float32(count) + presence))
        multiplier = float(np.float32(fields.get("dry_multiplier", 0)))
        said = window(history, fields.get("dry_window", 0))
        for token in set(known(said)) if multiplier else ():
            excess = longest_repeat(said, token, fields.get("dry_breakers", [])) - fields.get("dry_allowed_length", 2)
            if excess >= 0:
                put(
                    token,
                    logits[token] - np.float32(multiplier * float(np.float32(fields.get("dry_base", 1.75))) ** excess),
                )
        for token, bias in fields.get("logit_bias", {}).items():
            put(token, logits[token] + np.float32(bias))
    for mask in fields.get("masks", []):
        if len(mask):
            logits[~np.asarray(mask, bool)] = -np.inf
    return logits


def order_of(logits: Array) -> Array:
    """Returns the ids sorted by (-logit, id)."""
    return np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))


def prefix_reaching(masses: Array, share: float) -> tuple[int, float]:
    """Returns the length of the shortest prefix with this share of the mass, and the distance to another length."""
    running = np.cumsum(masses) / masses.sum()
    n = min(int(np.searchsorted(running, share)) + 1, len(masses))
    before = running[n - 2] if n > 1 else 0.0
    return n, float(min(abs(running[n - 1] - share), abs(before - share)))


def kept(logits: Array, fields: dict[str, Any]) -> tuple[set[int], float]:
    """Returns the ids that a draw may give, and the margin to another set of ids."""
    order = order_of(logits)
    values = logits[order].astype(np.float64)
    with np.errstate(over="ignore"):
        weights = np.exp((values - values[0]) / np.float64(np.float32(fields.get("temperature", 1))))
    n, margin = len(order), np.inf
    top_k = fields.get("top_k", 0)
    survivors = top_k if 0 < top_k < len(order) else len(order)
    n = min(n, survivors)
    if fields.get("top_p", 1) < 1:
        reaching, near = prefix_reaching(weights[:survivors], float(np.float32(fields["top_p"])))
        n, margin = min(n, reaching), min(margin, near)
    if fields.get("min_p", 0) > 0:
        least = float(np.float32(fields["min_p"]))
        n = min(n, int((weights >= least).sum()))
        margin = min(margin, float(np.abs(weights / least - 1).min()))
    ids, weights = order[:n], weights[:n]
    if fields.get("typical_p", 1) < 1:
        by_id = np.argsort(ids)
        ids, weights = ids[by_id], weights[by_id]
        p = weights / weights.sum()
        surprise = -np.log(np.maximum(p, 1e-300))
        distance = np.abs(surprise - (p * surprise).sum())
        nearest = np.argsort(distance, kind="stable")
        n, near = prefix_reaching(p[nearest], float(np.float32(fields["typical_p"])))
        gap = np.inf if n == len(ids) else distance[nearest[n]] - distance[nearest[n - 1]]
        margin = min(margin, near, float(gap))
        ids = ids[nearest[:n]]
    return set(ids.tolist()), margin


def draw(ids: Sequence[int], weights: Sequence[int], random: int) -> int:
    """Applies step 7 in unbounded integers."""
    target = random * sum(weights) >> 64
    running = 0
    for token, weight in zip(ids, weights, strict=True):
        running += weight
        if running > target:
            return token
    raise AssertionError("the target is below the total")


def integer_weights(logits: Array, temperature: float) -> list[int]:
    """Applies step 5 in float64; the sampler's weights agree within a tolerance."""
    values = (logits.astype(np.float64) - float(logits.max())) / float(np.float32(temperature))
    return [int(w * 2**40) for w in np.exp(values)]


def decided(margin: float) -> bool:
    return margin > tolerances.SAMPLER_CUT
