"""The arithmetic of a decision: exact rounding, sums, labels within labels; and the tokens of labels."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import imp_service
from imp_service import FieldsInvalid, LanguageModel
from imp_service.api.chat_prompt import ChatMessage, ChatPrompt
from imp_service.api.decisions import Decision, DecisionRequest, IntegerRange
from imp_service.generation.decision import ROOT, DecisionPlan, Path, log_total, some_at_a_time, tokens_after
from imp_service.tables import LIMITS
from imp_service.text import Tokenizer
from support.calls.decisions import bits
from support.oracles.decision_oracle import Row, label_masses, label_probabilities
from support.oracles.tolerances import LABELS, LAST_PLACE, LOG_OF_SUM
from support.run.release_run import repetitions
from support.text.tiny_vocabularies import byte_level, sentencepiece

PROMPT = "Once upon a time"
WIDE = Context(prec=80, Emin=-(10**15), Emax=10**15)
SINGLES = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]


def decided(model: LanguageModel, labels: Sequence[str], after: Callable[[Path], Row]) -> tuple[Decision, list[Path]]:
    """The decision from rows that the test makes, and the tokens of the labels."""
    plan = model._runtime.plan_decision(DecisionRequest(PROMPT, labels=tuple(labels)))
    for path in (ROOT, *plan.continuations):
        plan.score(path, after(path).astype("<f4").tobytes())
    decision = plan.decision()
    return decision, [each.token_ids for each in decision.labels]


def random_rows(n_tokens: int, seed: int, scale: float) -> Callable[[Path], Row]:
    """A row of logits for each path, the same for the same path."""

    def after(path: Path) -> Row:
        rng = np.random.default_rng([seed, *path])
        return rng.normal(0, scale, n_tokens).astype(np.float32).astype(np.float64)

    return after


def exact(logits: Sequence[float]) -> list[Decimal]:
    """The softmax with 80 digits."""
    weights = [WIDE.exp(WIDE.subtract(Decimal(each), Decimal(max(logits)))) for each in logits]
    total = Decimal(0)
    for weight in weights:
        total = WIDE.add(total, weight)
    return [WIDE.divide(weight, total) for weight in weights]


def error_of_sum(decision: Decision) -> Fraction:
    return abs(sum((Fraction(each.probability) for each in decision.labels), Fraction(0)) - 1)


def test_dec_2_each_probability_of_single_tokens_is_the_nearest_number(library: LanguageModel) -> None:
    rng = random.Random(38)
    for i in range(repetitions(2000, 60)):
        labels = rng.sample(SINGLES, rng.randint(2, len(SINGLES)))
        after = random_rows(library.vocab_size, i, rng.choice([0.01, 1.0, 5.0, 60.0, 1e4]))
        decision, paths = decided(library, labels, after)
        assert {len(path) for path in paths} == {1}
        expected = exact([float(after(ROOT)[path[0]]) for path in paths])
        assert [each.probability for each in decision.labels] == [float(each) for each in expected]
        assert error_of_sum(decision) <= Fraction(LAST_PLACE)
        assert decision.label == labels[expected.index(max(expected))]


def test_dec_2_the_sum_is_one_for_a_thousand_labels(library: LanguageModel) -> None:
    for i, scale in enumerate((0.001, 1.0, 30.0)):
        after = random_rows(library.vocab_size, i, scale)
        decision, paths = decided(library, list(map(str, range(1024))), after)
        assert {len(path) for path in paths} > {1, 2}
        assert error_of_sum(decision) <= Fraction(LAST_PLACE)
        assert math.fsum(each.probability for each in decision.labels) in (1.0, 1.0 - 2**-53)


def test_dec_2_logarithms_of_sums_have_small_errors() -> None:
    for i, scale in enumerate((0.0, 1.0, 20.0, 1e4)):
        row = np.random.default_rng(i).normal(0, scale, 3001).astype(np.float32)
        total = Decimal(0)
        for each in row.tolist():
            total = WIDE.add(total, WIDE.exp(WIDE.subtract(Decimal(each), Decimal(float(row.max())))))
        expected = WIDE.add(Decimal(float(row.max())), WIDE.ln(total))
        assert abs(WIDE.subtract(log_total(row), expected)) < Decimal(LOG_OF_SUM)


def test_dec_1_longer_labels_have_the_product_of_their_tokens(library: LanguageModel) -> None:
    after = random_rows(library.vocab_size, 7, 3.0)
    decision, paths = decided(library, ["yes", "no", "maybe", "a dog"], after)
    assert max(map(len, paths)) > 1
    expected = label_probabilities(lambda path: after(path)[: library.num_tokens], paths)
    assert [each.probability for each in decision.labels] == pytest.approx(expected, rel=LABELS)
    masses = label_masses(lambda path: after(path)[: library.num_tokens], paths)
    assert decision.mass == pytest.approx(sum(masses), rel=LABELS)
    other, _ = decided(library, ["yes", "no", "maybe", "a dog"], random_rows(library.vocab_size, 8, 3.0))
    assert [each.probability for each in other.labels] != [each.probability for each in decision.labels]


def test_dec_5_an_output_counts_for_the_longest_label(library: LanguageModel) -> None:
    after = random_rows(library.vocab_size, 11, 2.0)
    labels = ["a", "ab", "abc", "ax", "b"]
    tokenizer = library._runtime.tokenizer
    decision, paths = decided(library, labels, after)
    probabilities = [each.probability for each in decision.labels]
    expected = label_probabilities(lambda path: after(path)[: library.num_tokens], paths)
    assert probabilities == pytest.approx(expected, rel=LABELS)
    assert error_of_sum(decision) <= Fraction(LAST_PLACE)
    assert any(longer[: len(path)] == path != longer for path, longer in product(paths, paths)), tokenizer


def test_dec_5_every_output_of_a_small_vocabulary_is_counted_once() -> None:
    """All outputs of three tokens over three tokens, sorted to labels by hand."""
    rng = np.random.default_rng(5)
    rows = {path: rng.normal(0, 1, 3) for n in range(3) for path in product(range(3), repeat=n)}
    labels: list[Path] = [(0,), (0, 1), (0, 1, 2), (1, 1), (2,)]
    shares = {path: np.exp(row) / np.exp(row).sum() for path, row in rows.items()}
    counted = dict.fromkeys(labels, 0.0)
    for output in product(range(3), repeat=3):
        probability = float(np.prod([shares[output[:n]][output[n]] for n in range(3)]))
        begun = [label for label in labels if output[: len(label)] == label]
        if begun:
            counted[max(begun, key=len)] += probability
    assert label_masses(lambda path: rows[path], labels) == pytest.approx(list(counted.values()), rel=LABELS)


def test_dec_2_equal_labels_have_equal_probabilities_and_no_confidence(library: LanguageModel) -> None:
    decision, _ = decided(library, SINGLES[:4], lambda path: np.zeros(library.vocab_size))
    assert [each.probability for each in decision.labels] == [0.25] * 4
    assert (decision.label, decision.confidence) == ("a", 0.0)
    one = library._runtime.tokenizer.encode("b", add_special_tokens=False)[0]
    sure, _ = decided(library, SINGLES[:4], lambda path: 1000.0 * (np.arange(library.vocab_size) == one))
    assert (sure.label, sure.confidence, sure.probability) == ("b", 1.0, 1.0)


def test_dec_6_beginnings_are_evaluated_once(library: LanguageModel) -> None:
    def plan(labels: Sequence[str] = (), numbers: IntegerRange | None = None) -> DecisionPlan:
        return library._runtime.plan_decision(DecisionRequest(PROMPT, tuple(labels), numbers))

    assert plan(SINGLES).continuations == ()
    [[single]] = plan(SINGLES).groups
    assert len(single) == 1
    digits = {tuple(library.tokenize(str(n), add_special_tokens=False)) for n in range(100, 1000)}
    beginnings = {path[:n] for path in digits for n in range(1, len(path))}
    assert set(plan(numbers=IntegerRange(100, 999)).continuations) == beginnings
    assert len(beginnings) < 900
    groups = plan(numbers=IntegerRange(100, 999)).groups
    outputs = [each for group in groups for each in group]
    assert max(map(len, groups)) == LIMITS.run_sequences
    # Each beginning is that of some outputs, and no outputs are part of others.
    assert {each[:n] for each in outputs for n in range(len(each))} == {(), *beginnings}
    assert not any(a != b and b[: len(a) - 1] == a[:-1] and len(a) < len(b) for a in outputs for b in outputs)
    assert {each[:n] for each in outputs for n in range(1, len(each) + 1)} <= {
        path[:n] for path in digits for n in range(1, len(path) + 1)
    }


def test_dec_6_few_rows_are_held_at_once() -> None:
    groups = [((1, 2), (3, 4, 5)), ((6,) * 60,), ((7,),), ((8,) * 70,), ((9, 9),)]
    found = list(some_at_a_time(list(enumerate(groups))))
    assert [[i for i, _ in part] for part in found] == [[0], [1, 2], [3], [4]]
    assert list(some_at_a_time([])) == []


def test_dec_6_the_prompt_is_evaluated_once(library: LanguageModel) -> None:
    stats, labels = library._runtime.client.engine.stats, [f"{a} {b}" for a in "abcd" for b in "xyz"]
    prompt = "There was a small house at the end of the road, and in it lived "
    n_prompt = len(library.tokenize(prompt))

    def rows(labels: Sequence[str]) -> tuple[int, int, int]:
        before = stats()
        decision = library.decide(prompt, labels, bypass_prefix=True)
        after = stats()
        n_prefill, n_decode = after.n_prefill_rows, after.n_decode_rows
        return n_prefill - before.n_prefill_rows, n_decode - before.n_decode_rows, decision.evaluations

    plan = library._runtime.plan_decision(DecisionRequest(prompt, tuple(labels)))
    [group] = plan.groups
    assert rows(labels) == (n_prompt, sum(len(outputs) - 1 for outputs in group), len(plan.continuations))
    assert rows(["a", "b"]) == (n_prompt, 0, 0)


def test_dec_6_a_small_cache_takes_fewer_sequences_at_once() -> None:
    labels = [f"{a} {b}" for a in ("red", "blue", "green") for b in ("cats", "dogs", "cows", "hens")]
    with imp_service.load() as model, imp_service.load(None, "kv.bytes=192KiB", "limits.max_context=96") as small:
        ids = (model.tokenize("Once upon a time there was a little farm with animals. ") * 9)[:84]
        n_blocks = small._runtime.core.n_blocks
        groups = small._runtime.plan_decision(DecisionRequest(ids, tuple(labels))).groups
        assert 1 <= max(map(len, groups)) <= max(1, n_blocks - len(ids) // 16) < LIMITS.run_sequences
        assert bits(small.decide(ids, labels)) == bits(model.decide(ids, labels))


@pytest.mark.parametrize("text", ["yes", " yes", "\nyes", "<|im_end|>", "é", "▁x"])
def test_dec_4_a_vocabulary_of_bytes_has_the_tokens_of_the_text(text: str) -> None:
    tokenizer = Tokenizer.from_metadata(byte_level(merges=[("y", "e"), ("ye", "s")]))
    [begin] = tokenizer.encode("<|im_start|>", add_special_tokens=False, parse_special_tokens=True)
    [colon] = tokenizer.encode(":", add_special_tokens=False)
    expected = tokenizer.encode(text, add_special_tokens=False)
    assert tokens_after(tokenizer, colon, text) == tokens_after(tokenizer, begin, text) == expected
    assert not tokenizer.special_ids & set(expected)


@pytest.mark.parametrize("text", ["yes", " yes", "</s>"])
def test_dec_4_a_space_comes_before_a_label_only_where_a_text_begins(text: str) -> None:
    pieces = [("▁", -1.0), ("▁yes", -2.0), ("yes", -3.0), (":", -4.0), ("Q", -5.0), ("▁Q", -6.0)]
    tokenizer = Tokenizer.from_metadata(sentencepiece(pieces))
    whole = tokenizer.encode(f"Q:{text}", add_special_tokens=False)
    before = tokenizer.encode("Q:", add_special_tokens=False)
    assert whole[: len(before)] == before
    assert tokens_after(tokenizer, before[-1], text) == whole[len(before) :]
    assert tokenizer.eos_ids
    [end] = tokenizer.eos_ids
    assert tokens_after(tokenizer, end, text) == tokenizer.encode(text, add_special_tokens=False)
    assert tokens_after(tokenizer, end, text) != tokens_after(tokenizer, before[-1], text)


def test_dec_7_labels_with_the_same_tokens_are_refused(library: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imp_service.generation.decision.tokens_after", lambda tokenizer, last, text: [5])
    with pytest.raises(FieldsInvalid, match=r"labels\[1\]: the same tokens as labels\[0\]"):
        library.decide(PROMPT, ["a", "b"])
    with pytest.raises(FieldsInvalid, match="range: the same tokens as range"):
        library.decide(PROMPT, range=(0, 3))
    monkeypatch.setattr("imp_service.generation.decision.tokens_after", lambda tokenizer, last, text: [])
    with pytest.raises(FieldsInvalid, match=r"labels\[0\]: has no token"):
        library.decide(PROMPT, ["a", "b"])


def test_dec_7_a_chat_that_ends_in_reasoning_is_refused(
    library: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = ChatPrompt((ChatMessage("user", "Hello"),))
    assert library.decide(chat, ["yes", "no"]).label in ("yes", "no")
    monkeypatch.setattr("imp_service.text.channels.find_dialect.opens_reasoning", lambda dialect, prompt: True)
    with pytest.raises(FieldsInvalid, match="chat: its template has the model reason before it answers"):
        library.decide(chat, ["yes", "no"])
    assert library.decide(PROMPT, ["yes", "no"]).label in ("yes", "no")
