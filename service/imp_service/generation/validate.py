"""The rules of fields: what each option may be. All violations are reported at once, before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from imp_service.api.errors import Violation
from imp_service.api.options import (
    BY_NAME,
    SPARSE_POLICIES,
    TOOL_CHOICES,
    CacheOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.tables import DRAFTERS, DRY_FIELDS, LIMITS, SAMPLER_FIELDS, SamplerField

MAX_STOP_STRINGS = 16
MAX_STOP_STRING_BYTES = 256
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 64
MAX_SALT_BYTES = 64
# About 0.5 ms of work.
PIECE_TOKENS = 8192
U32 = 2**32 - 1
U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range. NaN is outside every range. `above` excludes the lower end, `whole` fractions."""

    low: float
    high: float
    above: bool = False
    whole: bool = False

    def check(self, path: str, value: float | None) -> Iterator[Violation]:
        """The violation of a value outside the range. An unset value has none."""
        if value is None:
            return
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            yield Violation(path, f"{value!r}, expected a {'whole ' if self.whole else ''}number")
        elif not ((self.low < value if self.above else self.low <= value) and value <= self.high):
            yield Violation(path, f"{value}, expected {'above ' if self.above else ''}{self.low} … {self.high}")


def bounds_of(field: SamplerField) -> Bounds:
    """The bounds of a sampler's field in a request and in imp.conf. Without an upper bound it has 32 bits."""
    high = U32 if math.isinf(field.high) else _plain(field.high)
    return Bounds(_plain(field.low), high, above=field.above, whole=field.is_whole)


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


SAMPLING_BOUNDS = {name: bounds_of(field) for name, field in SAMPLER_FIELDS.items()}
DRY_BOUNDS = {name: bounds_of(field) for name, field in DRY_FIELDS.items()}
SEED = Bounds(0, U64, whole=True)
TOKEN_COUNT = Bounds(0, U32, whole=True)
BIAS = Bounds(_plain(-LIMITS.bias), _plain(LIMITS.bias))
PRIORITY = Bounds(-LIMITS.priority, LIMITS.priority, whole=True)
TOP_LOGPROBS = Bounds(0, LIMITS.top_logprobs, whole=True)
SEQUENCES = Bounds(1, LIMITS.sequences, whole=True)
DRAFT_TOKENS = Bounds(1, LIMITS.draft_tokens, whole=True)
KEEP = Bounds(0, 1, above=True)


def sampling_violations(options: SamplingOptions, n_tokens: int, path: str = "sampling") -> Iterator[Violation]:
    """The violations of the sampling options."""
    for name, bounds in SAMPLING_BOUNDS.items():
        yield from bounds.check(f"{path}.{name}", getattr(options, name))
    yield from SEED.check(f"{path}.seed", options.seed)
    yield from _biases(f"{path}.logit_bias", options.logit_bias, n_tokens)
    if options.dry is not None:
        for name, bounds in DRY_BOUNDS.items():
            yield from bounds.check(f"{path}.dry.{name}", getattr(options.dry, name))
        yield from _texts(f"{path}.dry.breakers", options.dry.breakers, MAX_BREAKERS, MAX_BREAKER_BYTES)


def stop_violations(options: StopOptions, n_tokens: int, path: str = "stop") -> Iterator[Violation]:
    """The violations of the stop options."""
    unfit = [
        *TOKEN_COUNT.check(f"{path}.max_tokens", options.max_tokens),
        *TOKEN_COUNT.check(f"{path}.min_tokens", options.min_tokens),
    ]
    yield from unfit
    if not unfit and options.max_tokens is not None and options.min_tokens > options.max_tokens:
        yield Violation(
            f"{path}.min_tokens", f"{options.min_tokens}, expected at most max_tokens = {options.max_tokens}"
        )
    yield from _texts(f"{path}.strings", options.strings, MAX_STOP_STRINGS, MAX_STOP_STRING_BYTES)
    too_many = list(count_violations(len(options.token_ids), f"{path}.token_ids", 0, LIMITS.stop_tokens))
    yield from too_many or token_violations(f"{path}.token_ids", options.token_ids, n_tokens)
    yield from Bounds(0, 1e9, above=True).check(f"{path}.time_limit", options.time_limit)


def output_violations(options: OutputOptions) -> Iterator[Violation]:
    """The violations of the output options."""
    yield from TOP_LOGPROBS.check("output.top_logprobs", options.top_logprobs)


def cache_violations(options: CacheOptions) -> Iterator[Violation]:
    """The violations of the cache options."""
    yield from _text("cache.salt", options.salt, 0, MAX_SALT_BYTES)


def speculation_violations(options: SpeculationOptions) -> Iterator[Violation]:
    """The violations of the speculation options."""
    if options.max_draft_tokens is not None:
        yield from DRAFT_TOKENS.check("speculation.max_draft_tokens", options.max_draft_tokens)
    yield from drafter_violations(options.drafters)


def drafter_violations(names: Sequence[str], path: str = "speculation.drafters") -> Iterator[Violation]:
    """The violations of a choice among the server's drafters."""
    if isinstance(names, str):
        yield Violation(path, f"{names!r}, expected a list")
        return
    too_many = list(count_violations(len(names), path, 0, len(DRAFTERS)))
    if too_many:
        yield from too_many
        return
    for i, name in enumerate(names):
        if name not in DRAFTERS:
            yield Violation(f"{path}[{i}]", f"{name!r}, expected one of {', '.join(DRAFTERS)}")


def sparse_prefill_violations(options: SparsePrefillOptions) -> Iterator[Violation]:
    """The violations of the options of sparse prefill."""
    if options.policy is not None and options.policy not in SPARSE_POLICIES:
        found = f"{str(options.policy)[:80]!r}, expected one of {', '.join(SPARSE_POLICIES)}"
        yield Violation("sparse_prefill.policy", found)
    yield from KEEP.check("sparse_prefill.keep", options.keep)


def tenant_violations(tenant: str) -> Iterator[Violation]:
    """The violations of a tenant's name."""
    yield from _text("tenant", tenant, 0, LIMITS.tenant_bytes)


def tool_choice_violations(choice: str, path: str = "tool_choice") -> Iterator[Violation]:
    """The violations of a tool choice, without regard to the tools."""
    if choice not in TOOL_CHOICES and not (isinstance(choice, str) and choice.startswith(BY_NAME)):
        known = ", ".join(TOOL_CHOICES[1:])
        yield Violation(path, f"{str(choice)[:80]!r}, expected one of {known}, or {BY_NAME} with a name")


def step_violations(options: StepOptions, vocab_size: int, n_tokens: int, path: str = "step") -> Iterator[Violation]:
    """The violations of the step options."""
    yield from TOP_LOGPROBS.check(f"{path}.top_logprobs", options.top_logprobs)
    if options.allowed_token_mask:
        yield from mask_violations(f"{path}.allowed_token_mask", options.allowed_token_mask, vocab_size, n_tokens)


def mask_violations(path: str, mask: bytes, vocab_size: int, n_tokens: int) -> Iterator[Violation]:
    """The violations of a mask.

    A mask has a bit for each id of the vocabulary; at least one is set, and none beyond the tokens.
    """
    expected = (vocab_size + 7) // 8
    if len(mask) != expected:
        yield Violation(path, f"{len(mask)} bytes, expected {expected}")
    elif not any(mask):
        yield Violation(path, "allows no token")
    elif int.from_bytes(mask, "little") >> n_tokens:
        yield Violation(path, f"a bit at or above {n_tokens}, the number of tokens")


def count_violations(n: int, path: str, least: int, most: int | None) -> Iterator[Violation]:
    """The violation of a wrong number of entries. The caller then checks none of the entries."""
    if n < least or (most is not None and n > most):
        expected = f"{least} … {most}" if most is not None else f"at least {least}"
        yield Violation(path, f"{n} entries, expected {expected}")


def token_violations(path: str, tokens: Sequence[int], n_tokens: int) -> Iterator[Violation]:
    """The violations of ids that are not tokens."""
    for first, piece in token_pieces(tokens):
        if set(map(type, piece)) == {int} and min(piece) >= 0 and max(piece) < n_tokens:
            continue  # faster than each alone
        for i, token in enumerate(piece, first):
            yield from _token(f"{path}[{i}]", token, n_tokens)


def token_pieces(tokens: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """The tokens in pieces, each with its index. Between two pieces other threads can run."""
    for first in range(0, len(tokens), PIECE_TOKENS):
        yield first, tokens[first : first + PIECE_TOKENS]


def request_violations(request: GenerationRequest, n_tokens: int) -> Iterator[Violation]:
    """All violations of a request, except those of its prompt's tokens."""
    yield from sampling_violations(request.sampling, n_tokens)
    yield from stop_violations(request.stop, n_tokens)
    yield from output_violations(request.output)
    yield from cache_violations(request.cache)
    yield from speculation_violations(request.speculation)
    yield from sparse_prefill_violations(request.sparse_prefill)
    yield from SEQUENCES.check("num_sequences", request.num_sequences)
    yield from PRIORITY.check("priority", request.priority)
    yield from tenant_violations(request.tenant)
    yield from tool_choice_violations(request.tool_choice)


def _biases(path: str, biases: Mapping[int, float], n_tokens: int) -> Iterator[Violation]:
    too_many = list(count_violations(len(biases), path, 0, LIMITS.logit_biases))
    if too_many:
        yield from too_many
        return
    for token, bias in biases.items():
        yield from _token(f"{path}[{token}]", token, n_tokens)
        yield from BIAS.check(f"{path}[{token}]", bias)


def _token(path: str, token: object, n_tokens: int) -> Iterator[Violation]:
    if not isinstance(token, Integral) or isinstance(token, bool):
        yield Violation(path, f"{token!r}, expected a token id")
    elif not 0 <= int(token) < n_tokens:
        yield Violation(path, f"token {token}, expected below {n_tokens}, the number of tokens")


def _texts(path: str, texts: Sequence[str], max_count: int, max_bytes: int) -> Iterator[Violation]:
    if isinstance(texts, str):
        yield Violation(path, f"{texts!r}, expected a list of texts")
        return
    too_many = list(count_violations(len(texts), path, 0, max_count))
    if too_many:
        yield from too_many
        return
    for i, text in enumerate(texts):
        yield from _text(f"{path}[{i}]", text, 1, max_bytes)


def _text(path: str, text: object, min_bytes: int, max_bytes: int) -> Iterator[Violation]:
    if not isinstance(text, str):
        yield Violation(path, f"{text!r}, expected a text")
        return
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        yield Violation(path, f"a surrogate at character {error.start}")
        return
    if not min_bytes <= n_bytes <= max_bytes:
        yield Violation(path, f"{n_bytes} bytes, expected {min_bytes} … {max_bytes}")
