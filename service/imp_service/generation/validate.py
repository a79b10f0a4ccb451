"""The field rules: one table of what each option may be, all violations reported at once, before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from imp_service.core.errors import InvalidArgument
from imp_service.generation.options import (
    CacheOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    StepOptions,
    StopOptions,
)

MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_BYTES = 256
MAX_STOP_TOKENS = 256
MAX_LOGIT_BIAS = 1024
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 64
MAX_SALT_BYTES = 64
MAX_TENANT_BYTES = 64
MAX_SEQUENCES = 8
# Some 0.5 ms of work.
PIECE_TOKENS = 8192
U32 = 2**32 - 1
U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that is not what it may be."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range; NaN is outside every range. `above` excludes the lower end, `whole` every fraction."""

    low: float
    high: float
    above: bool = False
    whole: bool = False

    def check(self, path: str, value: float | None) -> Iterator[Violation]:
        """Nothing where the value is unset or within."""
        if value is None:
            return
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            yield Violation(path, f"{value!r}, expected a {'whole ' if self.whole else ''}number")
        elif not ((self.low < value if self.above else self.low <= value) and value <= self.high):
            yield Violation(path, f"{value}, expected {'above ' if self.above else ''}{self.low} … {self.high}")


SAMPLING_BOUNDS = {
    "temperature": Bounds(0, 100),
    "top_k": Bounds(0, U32, whole=True),
    "top_p": Bounds(0, 1, above=True),
    "min_p": Bounds(0, 1),
    "typical_p": Bounds(0, 1, above=True),
    "repetition_penalty": Bounds(0.01, 100),
    "frequency_penalty": Bounds(-2, 2),
    "presence_penalty": Bounds(-2, 2),
    "penalty_window": Bounds(0, U32, whole=True),
    "seed": Bounds(0, U64, whole=True),
}
DRY_BOUNDS = {
    "multiplier": Bounds(0, 100),
    "base": Bounds(1, 100),
    "allowed_length": Bounds(0, 1024, whole=True),
    "window": Bounds(0, U32, whole=True),
}
TOKEN_COUNT = Bounds(0, U32, whole=True)
BIAS = Bounds(-100, 100)
PRIORITY = Bounds(-100, 100, whole=True)


def sampling_violations(options: SamplingOptions, n_tokens: int, path: str = "sampling") -> Iterator[Violation]:
    """What is wrong with a sampler."""
    for name, bounds in SAMPLING_BOUNDS.items():
        yield from bounds.check(f"{path}.{name}", getattr(options, name))
    if len(options.logit_bias) > MAX_LOGIT_BIAS:
        yield Violation(f"{path}.logit_bias", f"{len(options.logit_bias)} entries, at most {MAX_LOGIT_BIAS}")
    for token, bias in options.logit_bias.items():
        yield from _token(f"{path}.logit_bias[{token}]", token, n_tokens)
        yield from BIAS.check(f"{path}.logit_bias[{token}]", bias)
    if options.dry is not None:
        for name, bounds in DRY_BOUNDS.items():
            yield from bounds.check(f"{path}.dry.{name}", getattr(options.dry, name))
        yield from _texts(f"{path}.dry.breakers", options.dry.breakers, MAX_BREAKERS, MAX_BREAKER_BYTES)


def stop_violations(options: StopOptions, n_tokens: int) -> Iterator[Violation]:
    """What is wrong with the ends."""
    unfit = [
        *TOKEN_COUNT.check("stop.max_tokens", options.max_tokens),
        *TOKEN_COUNT.check("stop.min_tokens", options.min_tokens),
    ]
    yield from unfit
    if not unfit and options.max_tokens is not None and options.min_tokens > options.max_tokens:
        yield Violation("stop.min_tokens", f"{options.min_tokens}, expected at most max_tokens = {options.max_tokens}")
    yield from _texts("stop.strings", options.strings, MAX_STOP_STRINGS, MAX_STOP_STRING_BYTES)
    if len(options.token_ids) > MAX_STOP_TOKENS:
        yield Violation("stop.token_ids", f"{len(options.token_ids)} entries, at most {MAX_STOP_TOKENS}")
    for i, token in enumerate(options.token_ids):
        yield from _token(f"stop.token_ids[{i}]", token, n_tokens)
    yield from Bounds(0, 1e9, above=True).check("stop.time_limit", options.time_limit)


def output_violations(options: OutputOptions) -> Iterator[Violation]:
    """What is wrong with what is asked back."""
    yield from Bounds(0, MAX_TOP_LOGPROBS, whole=True).check("output.top_logprobs", options.top_logprobs)


def cache_violations(options: CacheOptions) -> Iterator[Violation]:
    """What is wrong with the use of the cache."""
    yield from _text("cache.salt", options.salt, 0, MAX_SALT_BYTES)


def tenant_violations(tenant: str) -> Iterator[Violation]:
    """What is wrong with a tenant's name."""
    yield from _text("tenant", tenant, 0, MAX_TENANT_BYTES)


def step_violations(options: StepOptions, vocab_size: int, n_tokens: int, path: str = "step") -> Iterator[Violation]:
    """What is wrong with what a step is asked for."""
    yield from Bounds(0, MAX_TOP_LOGPROBS, whole=True).check(f"{path}.top_logprobs", options.top_logprobs)
    if options.allowed_token_mask:
        yield from mask_violations(f"{path}.allowed_token_mask", options.allowed_token_mask, vocab_size, n_tokens)


def mask_violations(path: str, mask: bytes, vocab_size: int, n_tokens: int) -> Iterator[Violation]:
    """What is wrong with a mask that is set: one bit for each id of the vocabulary, some of them on, all of tokens."""
    expected = (vocab_size + 7) // 8
    if len(mask) != expected:
        yield Violation(path, f"{len(mask)} bytes, expected {expected}")
    elif not any(mask):
        yield Violation(path, "allows no token")
    elif int.from_bytes(mask, "little") >> n_tokens:
        yield Violation(path, f"a bit at or above {n_tokens}, the number of tokens")


def token_violations(path: str, tokens: Sequence[int], n_tokens: int) -> Iterator[Violation]:
    """Ids that are no tokens."""
    for first, piece in token_pieces(tokens):
        if set(map(type, piece)) == {int} and min(piece) >= 0 and max(piece) < n_tokens:
            continue  # without looking at each: prompts are long
        for i, token in enumerate(piece, first):
            yield from _token(f"{path}[{i}]", token, n_tokens)


def token_pieces(tokens: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """The tokens in pieces, each with its place: no other thread of Python runs while one call goes through them."""
    for first in range(0, len(tokens), PIECE_TOKENS):
        yield first, tokens[first : first + PIECE_TOKENS]


def request_violations(request: GenerationRequest, n_tokens: int) -> Iterator[Violation]:
    """Everything that is wrong with a generation, its prompt's tokens aside."""
    yield from sampling_violations(request.sampling, n_tokens)
    yield from stop_violations(request.stop, n_tokens)
    yield from output_violations(request.output)
    yield from cache_violations(request.cache)
    yield from Bounds(1, MAX_SEQUENCES, whole=True).check("num_sequences", request.num_sequences)
    yield from PRIORITY.check("priority", request.priority)
    yield from tenant_violations(request.tenant)


class FieldsInvalid(InvalidArgument):
    """FIELD_INVALID with every field that is not what it may be."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        self.reason = "FIELD_INVALID"
        self.message = "; ".join(map(str, self.violations))
        self.details = {}
        super().__init__(f"{self.reason}: {self.message}")


def refuse(violations: Iterable[Violation]) -> None:
    """Raises FieldsInvalid with every violation, where there is one."""
    found = tuple(violations)
    if found:
        raise FieldsInvalid(found)


def invalid(words: str) -> FieldsInvalid:
    """The error of one field, ready to be raised, from `path: what is wrong`."""
    path, _, message = words.partition(": ")
    return FieldsInvalid([Violation(path, message)])


def _token(path: str, token: object, n_tokens: int) -> Iterator[Violation]:
    if not isinstance(token, Integral) or isinstance(token, bool):
        yield Violation(path, f"{token!r}, expected a token id")
    elif not 0 <= int(token) < n_tokens:
        yield Violation(path, f"token {token}, expected below {n_tokens}, the number of tokens")


def _texts(path: str, texts: Sequence[str], max_count: int, max_bytes: int) -> Iterator[Violation]:
    if isinstance(texts, str):
        yield Violation(path, f"{texts!r}, expected a list of texts")
        return
    if len(texts) > max_count:
        yield Violation(path, f"{len(texts)} entries, at most {max_count}")
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
