"""What a caller has of a stream that broke, and needs to go on with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from .errors import Violation
from .facts import findings, option
from .rules import U64, Bounds, Finding, Limits, Number, Rule, TokenId, TokenIds, count_violations, shown

# Of the digests in an origin, in hexadecimal.
SERVER_DIGITS, REQUEST_DIGITS = 16, 32
# What a server may find to differ from that of the stream: its model, the request, or the token that it draws again.
SERVER, REQUEST, TOKEN = MISMATCHES = ("server", "request", "token")
# Wrong ids of one sequence that are reported.
MOST_FINDINGS = 100
# Dates have no year beyond it, in any time zone.
LAST_CREATED = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class Digest(Rule):
    """So many digits of a hexadecimal number."""

    n_digits: int

    def check(self, value: str, path: str, limits: Limits) -> Iterator[Finding]:
        if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{self.n_digits}}}", value):
            yield Violation(path, f"{shown(value)}, expected {self.n_digits} hexadecimal digits")


class ToldIds(Rule):
    """Token ids of an output, which are no more than the context has room for."""

    def check(self, value: Sequence[int], path: str, limits: Limits) -> Iterable[Finding]:
        return islice(TokenIds(most="max_context").check(value, path, limits), MOST_FINDINGS)


@dataclass(frozen=True, slots=True)
class Origin:
    """What decides the tokens of a stream: `Started` has it, and a resumed request returns it unchanged."""

    # The model, its weights and the arithmetic, as a digest. Equal ones continue each other's streams.
    server: str = option(rule=Digest(SERVER_DIGITS))
    # The prompt's tokens, and every option that decides tokens, as a digest.
    request: str = option(rule=Digest(REQUEST_DIGITS))
    seed: int = option(rule=Number(Bounds(0, U64, whole=True)))
    # When the stream began, in seconds since 1970: chat templates may write the date.
    created: int = option(rule=Number(Bounds(0, LAST_CREATED, whole=True)))


@dataclass(frozen=True, slots=True)
class SessionResume:
    """The state of a session that a server lost, besides its tokens and its sampler."""

    origin: Origin
    # How many tokens are held where the text of the outputs begins. None: it begins after what is evaluated now.
    text_from: int | None = None
    # The pending token. It is drawn again.
    token_id: int | None = option(None, TokenId())
    # The pending token is taken as it is.
    taken: bool = False

    def contradictions(self, path: str) -> Iterator[Violation]:
        """Only a pending token can be taken."""
        if self.taken and self.token_id is None:
            yield Violation(f"{path}.taken", "set, expected none without token_id")


@dataclass(frozen=True, slots=True)
class ResumedSequence:
    """What came of one sequence."""

    token_ids: Sequence[int] = option((), ToldIds())
    # Its end came too, and is not told again.
    finished: bool = False
    # How many of the tokens came together each time. Empty: the caller does not need to know.
    chunks: Sequence[int] = ()

    def contradictions(self, path: str) -> Iterator[Violation]:
        """The chunks are of these tokens."""
        are_counts = all(isinstance(n, int) and n > 0 for n in self.chunks)
        if self.chunks and not (are_counts and sum(self.chunks) == len(self.token_ids)):
            yield Violation(f"{path}.chunks", f"expected numbers above 0 whose sum is {len(self.token_ids)}")


class ResumedSequences(Rule):
    """Those of one request. If they are too many, none is checked."""

    def check(self, value: Sequence[ResumedSequence], path: str, limits: Limits) -> Iterator[Finding]:
        wrong: list[Finding] = list(count_violations(len(value), path, 1, int(limits.bounds["num_sequences"].high)))
        for i, each in enumerate(() if wrong else value):
            wrong += findings(each, limits, f"{path}[{i}]")
        yield from wrong


@dataclass(frozen=True, slots=True)
class Resume:
    """What came of a stream that broke after `Started`."""

    origin: Origin
    # All sequences of the request, in order.
    sequences: Sequence[ResumedSequence] = option(rule=ResumedSequences())


def different_parts(parts: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """The names of the parts of two fingerprints that have another value, or that one of them lacks."""
    return sorted(name for name in parts.keys() | others.keys() if parts.get(name) != others.get(name))


def told_path(sequence: int, token: int | None = None) -> str:
    """The field of a sequence's tokens, or of one of them."""
    return f"resume.sequences[{sequence}].token_ids" + ("" if token is None else f"[{token}]")


def resume_violations(
    resume: Resume, path: str, *, num_sequences: int, max_tokens: int | None, seed: int | None
) -> Iterator[Violation]:
    """What cannot have come of a request with these options."""
    if not (isinstance(resume, Resume) and isinstance(resume.origin, Origin)):
        yield Violation(_under(path, "resume"), f"{shown(resume)}, expected a Resume with an Origin")
        return
    if len(resume.sequences) != num_sequences:
        words = f"{len(resume.sequences)} entries, expected num_sequences = {num_sequences}"
        yield Violation(_under(path, "resume.sequences"), words)
    for i, each in enumerate(resume.sequences):
        if max_tokens is not None and len(each.token_ids) > max_tokens:
            words = f"{len(each.token_ids)} entries, expected at most max_tokens = {max_tokens}"
            yield Violation(_under(path, told_path(i)), words)
    if seed is not None and seed != resume.origin.seed:
        words = f"{resume.origin.seed}, expected that of the request, {seed}"
        yield Violation(_under(path, "resume.origin.seed"), words)


def _under(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field
