"""The plan of a decision: the tokens of its labels, the rows of logits that it needs, and its arithmetic.

A label's probability follows from those of its tokens. If a label is the beginning of another, an output counts for the
longest label that it begins with. All arithmetic is on decimals with many digits, or on numbers of 64 bits with
operations that each processor rounds alike. So the result depends on the logits alone, and each probability is the
nearest one of 64 bits. Those of all labels then add up to 1, with an error below one unit in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from imp_service.api.decisions import MAX_EVALUATIONS, Decision, DecisionRequest, LabelProbability
from imp_service.api.errors import invalid
from imp_service.api.options import DENSE, GenerationRequest, SparsePrefillOptions, StopOptions
from imp_service.api.replies import Chunk, Finished, Reply, Usage
from imp_service.core import make_error
from imp_service.generation.prompt_reader import PromptReader
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatPrompt, TextSpan, Tokenizer

T = TypeVar("T")
# Tokens of a label, from its first one on.
Path = tuple[int, ...]
# The prompt alone.
ROOT: Path = ()
# Why a run of rows ends.
EVALUATED = ("max_tokens", "stop")
# The outputs of each sequence of one run after the prompt: a path, and one token more.
Group = tuple[Path, ...]
# Rows that are evaluated together: each takes memory until it is read.
MOST_ROWS = 64

# In which a prompt says that the model is to reason.
_END_TOKENS = 32

_DIGITS = Context(prec=40)
_ZERO, _ONE = Decimal(0), Decimal(1)


@dataclass(frozen=True, slots=True)
class PathScores:
    """The scores of the tokens that go on after a path: their logits, less `log_total` the log probabilities."""

    logits: Mapping[int, float]
    log_total: Decimal


class DecisionPlan:
    """A checked decision. Run each of its groups, the first one alone, and give the replies to take()."""

    def __init__(
        self,
        request: DecisionRequest,
        prompts: PromptReader,
        text: TextSide,
        n_tokens: int,
        most_sequences: Callable[[int, int], int],
    ) -> None:
        """Reads the prompt and the labels, which takes a while. Raises what is wrong with them.

        `most_sequences`: of one run after so many tokens, with so many outputs.
        """
        tokenizer = text.tokenizer
        self._request = request
        self._n_tokens = n_tokens
        self._texts = request.texts
        read = prompts.read(request.prompt, begins=True)
        if not read.ids:
            raise invalid("prompt", "has no token")
        if isinstance(request.prompt, ChatPrompt):
            _require_answer(text, read.ids)
        self._paths = _label_tokens(tokenizer, read.ids[-1], request)
        prompts.require_room(len(read.ids) + max(len(path) - 1 for path in self._paths))
        self.read = read
        self._next = _next_tokens(self._paths)
        if len(self.continuations) > MAX_EVALUATIONS:
            words = f"{len(self.continuations)} beginnings of labels to evaluate, expected at most {MAX_EVALUATIONS}"
            raise invalid("labels", words)
        self.groups = self._grouped(most_sequences)
        self._scores: dict[Path, PathScores] = {}
        self._usage = Usage(0, 0, 0)

    @cached_property
    def continuations(self) -> tuple[Path, ...]:
        """The paths besides the root: each proper beginning of a label."""
        return tuple(sorted(self._next.keys() - {ROOT}))

    def _grouped(self, most_sequences: Callable[[int, int], int]) -> tuple[Group, ...]:
        """Every path is part of the outputs of a sequence. The first group has the root too, as each has."""
        whole = set(self._next) - {path[:-1] for path in self._next if path}
        outputs = [(*path, min(self._next[path])) for path in sorted(whole)]
        most = most_sequences(len(self.read.ids), max(map(len, outputs)))
        return tuple(tuple(outputs[i : i + most]) for i in range(0, len(outputs), most))

    def generation(self, group: Group, time_limit: float | None = None) -> GenerationRequest:
        """The evaluation of the prompt with outputs. Never sparse: a probability has no approximation."""
        asked, read = self._request, self.read
        return GenerationRequest(
            asked.prompt if read.images.plans else read.ids,
            num_sequences=len(group),
            stop=StopOptions(max_tokens=max(map(len, group)), time_limit=time_limit),
            cache=asked.cache,
            priority=asked.priority,
            tenant=asked.tenant,
            sparse_prefill=SparsePrefillOptions(DENSE),
        )

    def score(self, path: Path, row: bytes) -> None:
        """Takes the logits of the row after a path."""
        logits = np.frombuffer(row, "<f4")[: self._n_tokens]
        after = {token: float(logits[token]) for token in self._next[path]}
        self._scores[path] = PathScores(after, log_total(logits))

    def take(self, group: Group, reply: Reply) -> None:
        """Takes a reply to the run of a group. Raises CANCELLED if it ended early."""
        if isinstance(reply, Chunk):
            path = group[reply.index][: reply.first_token]
            if path not in self._scores:
                self.score(path, reply.logits)
        if isinstance(reply, Finished):
            if reply.reason not in EVALUATED:
                raise make_error("CANCELLED", "the evaluation was ended")
            if group is self.groups[0] and reply.usage is not None:
                self._usage = reply.usage

    def decision(self) -> Decision:
        """The answer, once every row is scored."""
        logs = [self._log_weight(path) for path in self._paths]
        top = max(logs)
        weights = _without_longer(self._paths, [_DIGITS.exp(_DIGITS.subtract(each, top)) for each in logs])
        total = _total(weights)
        in_all = _DIGITS.exp(_DIGITS.subtract(top, self._scores[ROOT].log_total))
        shares = [_DIGITS.divide(weight, total) for weight in weights]
        best = max(range(len(shares)), key=shares.__getitem__)
        numbers = None if self._request.range is None else self._request.range.numbers
        found = zip(self._texts, shares, self._paths, strict=True)
        return Decision(
            label=self._texts[best],
            labels=tuple(LabelProbability(text, float(share), path) for text, share, path in found),
            mass=float(min(_ONE, _DIGITS.multiply(total, in_all))),
            confidence=_confidence(shares),
            mean=None if numbers is None else float(_total(map(_DIGITS.multiply, shares, map(Decimal, numbers)))),
            usage=self._usage,
            evaluations=len(self.continuations),
        )

    def _log_weight(self, path: Path) -> Decimal:
        """The log probability of an output that begins with a label, plus what is the same for all labels.

        It is the logit of the first token, and the log probability of each further one.
        """
        found = Decimal(self._scores[ROOT].logits[path[0]])
        for n, token in enumerate(path[1:], 1):
            after = self._scores[path[:n]]
            found = _DIGITS.add(found, _DIGITS.subtract(Decimal(after.logits[token]), after.log_total))
        return found


def some_at_a_time(wanted: Sequence[tuple[T, Group]]) -> Iterator[Sequence[tuple[T, Group]]]:
    """Groups to run together: of at most MOST_ROWS rows, or one of more."""
    part: list[tuple[T, Group]] = []
    n_rows = 0
    for each in wanted:
        n_more = sum(map(len, each[1]))
        if part and n_rows + n_more > MOST_ROWS:
            yield part
            part, n_rows = [], 0
        part.append(each)
        n_rows += n_more
    if part:
        yield part


def log_total(logits: NDArray[np.float32]) -> Decimal:
    """The logarithm of the sum of the exponentials."""
    most = np.float64(logits.max())
    terms = logits.astype(np.float64)
    terms -= most
    for first in range(0, len(terms), _TERMS_AT_ONCE):
        _exp(terms[first : first + _TERMS_AT_ONCE])
    n_whole = len(terms) - len(terms) % _PART
    sums = _sums(terms[:n_whole].reshape(-1, _PART))
    if n_whole < len(terms):
        sums = np.append(sums, _sums(terms[np.newaxis, n_whole:]))
    [total] = _sums(sums[np.newaxis])
    return _DIGITS.add(Decimal(float(most)), _DIGITS.ln(Decimal(float(total))))


# Terms that are added first; sums of such parts are added then.
_PART = 4096
# Exponentials that are computed together: a processor's cache holds them.
_TERMS_AT_ONCE = 8192
# ln 2 in two parts. The first has few bits, so that its small multiples are exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
# A smaller term does not change a sum that has 1 among its terms, however many there are.
_LEAST = -100.0
# Of numbers of 64 bits.
_BIAS, _FRACTION_BITS = 1023, 52
_TAYLOR = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))


def _exp(x: NDArray[np.float64]) -> None:
    """Replaces x <= 0 by exp(x), of products and sums alone: libraries have other last bits on other processors."""
    np.maximum(x, _LEAST, out=x)
    n = np.rint(x * _LOG2_E)
    x -= n * _LN2_HIGH
    x -= n * _LN2_LOW
    found = x * _TAYLOR[0]
    for coefficient in _TAYLOR[1:-1]:
        found += coefficient
        found *= x
    found += _TAYLOR[-1]
    # 2^n, whose bits are its exponent.
    powers = (n.astype(np.int64) + _BIAS) << _FRACTION_BITS
    np.multiply(found, powers.view(np.float64), out=x)


def _sums(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row in a fixed order: halves are added until one number is left. Changes `terms`."""
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0]


def _confidence(shares: Sequence[Decimal]) -> float:
    """1 less the entropy of the labels, in parts of the most that it can be."""
    terms = (_DIGITS.multiply(share, _DIGITS.ln(share)) for share in shares if share)
    return float(max(_ZERO, _DIGITS.add(_ONE, _DIGITS.divide(_total(terms), _DIGITS.ln(Decimal(len(shares)))))))


def _total(terms: Iterable[Decimal]) -> Decimal:
    return reduce(_DIGITS.add, terms, _ZERO)


def _without_longer(paths: Sequence[Path], weights: Sequence[Decimal]) -> list[Decimal]:
    """The weights, each without those of the labels that go on from it."""
    numbers = {path: i for i, path in enumerate(paths)}
    left = list(weights)
    for path, weight in zip(paths, weights, strict=True):
        shorter = next((numbers[path[:n]] for n in range(len(path) - 1, 0, -1) if path[:n] in numbers), None)
        if shorter is not None:
            left[shorter] = _DIGITS.subtract(left[shorter], weight)
    return [max(_ZERO, each) for each in left]


def _require_answer(text: TextSide, ids: Sequence[int]) -> None:
    """Raises FIELD_INVALID if a conversation ends where the model is to reason: no answer follows there."""
    from imp_service.text.channels.find_dialect import opens_reasoning

    end = text.tokenizer.decode(ids[-_END_TOKENS:], special_tokens=True)
    if opens_reasoning(text.dialect, end):
        words = "its template has the model reason before it answers, expected template_kwargs that turn this off"
        raise invalid("chat", words)


def _next_tokens(paths: Sequence[Path]) -> Mapping[Path, set[int]]:
    """Path -> the tokens with which a label goes on after it."""
    found: dict[Path, set[int]] = {}
    for path in paths:
        for n, token in enumerate(path):
            found.setdefault(path[:n], set()).add(token)
    return found


def _label_tokens(tokenizer: Tokenizer, last: int, request: DecisionRequest) -> list[Path]:
    """The tokens of each label. Raises FIELD_INVALID if two labels have the same."""
    found: dict[Path, int] = {}
    name = "labels" if request.range is None else "range"
    for i, text in enumerate(request.texts):
        path = tuple(tokens_after(tokenizer, last, text))
        where = f"{name}[{i}]" if request.range is None else name
        if not path:
            raise invalid(where, "has no token")
        if found.setdefault(path, i) != i:
            raise invalid(where, f"the same tokens as {name}[{found[path]}]")
    return list(found)


def tokens_after(tokenizer: Tokenizer, last: int, text: str) -> list[int]:
    """The tokens with which a model writes a text after the token `last`.

    They are those of the text alone. A vocabulary that puts a space before a text does so only where a text begins:
    after a special token. Special tokens that are spelled in the text stay text.
    """
    if last not in tokenizer.special_ids:
        return tokenizer.encode_rest(text)
    spelled = tokenizer.token_bytes(last).decode("utf-8", "replace")
    spans = [TextSpan(spelled, parses_special_tokens=True), TextSpan(text, parses_special_tokens=False)]
    ids = tokenizer.encode_spans(spans, add_special_tokens=False)
    return ids[1:] if ids[:1] == [last] else tokenizer.encode(text, add_special_tokens=False)
