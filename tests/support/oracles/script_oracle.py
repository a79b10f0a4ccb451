"""Computes the expected generations of a script model: the contract in plain Python, without blocks or batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1


def mix(x: int) -> int:
    """Returns splitmix64 of x."""
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def hash_logits(tokens: Sequence[int], vocab_size: int) -> list[float]:
    """Returns the logits after `tokens`, which are a hash of all of them."""
    state = 0
    for token in tokens:
        state = mix(state ^ (token + 1))
    return [(mix((state + i) & MASK64) >> 40) / (1 << 21) for i in range(vocab_size)]


def uniform(seed: int, sequence: int, index: int) -> int:
    """Returns 64 bits of Philox-4x32-10 for an output index."""
    c = [index & MASK32, sequence & MASK32, 0, 0]
    k0, k1 = seed & MASK32, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & MASK32, (a >> 32) ^ c[3] ^ k1, a & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c[0] << 32 | c[1]


@dataclass(frozen=True)
class Sampler:
    """The options that the script backend knows."""

    temperature: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """Returns the options as keyword arguments of the core's SamplingOptions."""
        return dict(vars(self))


def sample(
    row: Sequence[float],
    sampler: Sampler,
    history: Sequence[int],
    n_output: int,
    *,
    sequence: int = 0,
    allowed: Callable[[int], bool] = lambda _: True,
) -> int:
    """Applies steps 0 to 7 of the contract, for the options of `Sampler`."""
    logits = []
    output = list(history[len(history) - n_output :])
    for token, raw in enumerate(row):
        logit = raw
        if token in history and sampler.repetition_penalty != 1:
            logit = logit / sampler.repetition_penalty if logit > 0 else logit * sampler.repetition_penalty
        if token in output:
            logit -= sampler.frequency_penalty * output.count(token) + sampler.presence_penalty
        logit += sampler.logit_bias.get(token, 0.0)
        logits.append(logit if allowed(token) else -math.inf)
    best = max(logits)
    if sampler.temperature < 1e-4:
        return logits.index(best)
    weights = [math.floor(math.exp((logit - best) / sampler.temperature) * 2**40) for logit in logits]
    threshold = uniform(sampler.seed, sequence, n_output) * sum(weights) >> 64
    total = 0
    for token, weight in enumerate(weights):
        total += weight
        if total > threshold:
            return token
    raise AssertionError("the weights do not reach their sum")


def continuation(
    prompt: Sequence[int],
    n: int,
    sampler: Sampler = Sampler(),
    *,
    vocab_size: int = 16,
    sequence: int = 0,
    base: int | None = None,
    logits: Callable[[Sequence[int], int], list[float]] = hash_logits,
) -> list[int]:
    """Returns the first n outputs after `prompt`."""
    tokens = list(prompt)
    start = len(prompt) if base is None else base
    for _ in range(n):
        tokens.append(sample(logits(tokens, vocab_size), sampler, tokens, len(tokens) - start, sequence=sequence))
    return tokens[len(prompt) :]


def prompt_of(length: int, salt: int = 0, vocab_size: int = 16) -> list[int]:
    """Returns a prompt of different ids without any pattern."""
    return [mix(salt * 1_000_003 + i) % vocab_size for i in range(length)]
