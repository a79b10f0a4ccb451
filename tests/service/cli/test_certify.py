"""imp certify: its questions, the bound of the loss, and the record of a pair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service.api.errors import Error
from imp_service.cli.certify.questions import Question, facts, needles, read_questions
from imp_service.cli.certify.trial import PairedAnswer, is_right, pairs_of
from imp_service.cli.certify.verdict import LEAST_POINTS, FirstToken, Pairs, Z, faults
from imp_service.models import demo_draft_model_path, demo_model_path
from support.oracles.tolerances import BISECTED_POINTS, SCORE_ON_GRID

Call = Callable[..., tuple[int, str, str]]
FASTER = [FirstToken(n, 8192, 4.0, 2.0) for n in (1, 2)]


def words(text: str) -> int:
    return len(text.split())


def score(gained: int, lost: int, n: int, difference: float) -> float:
    """Returns the score statistic, by a search for the likeliest shares under the difference."""
    shares = np.linspace(max(0.0, -difference), (1 - difference) / 2, 400_001)[1:-1]
    terms = lost * np.log(shares) + gained * np.log(shares + difference) if gained else lost * np.log(shares)
    same = n - gained - lost
    likely = shares[(terms + same * np.log(1 - 2 * shares - difference)).argmax()]
    return float((gained - lost - n * difference) / np.sqrt(n * (2 * likely + difference * (1 - difference))))


@pytest.mark.parametrize(("gained", "lost", "n"), [(12, 2, 50), (2, 12, 50), (3, 3, 200), (0, 5, 160), (20, 1, 160)])
def test_spc_50_the_bound_is_that_of_the_score_interval(gained: int, lost: int, n: int) -> None:
    bound = Pairs(n, n - gained - lost, lost, gained).least_points / 100
    assert score(gained, lost, n, bound) == pytest.approx(Z, abs=SCORE_ON_GRID)
    assert bound < (gained - lost) / n


def test_spc_50_equal_answers_bound_the_loss_by_their_number() -> None:
    """Without a differing pair the bound is z² / (n + z²): 133 questions are enough, and 132 are not."""
    for n in (10, 132, 133, 500):
        least = Pairs(n, n, 0, 0).least_points
        assert least == pytest.approx(-100 * Z**2 / (n + Z**2), abs=BISECTED_POINTS)
        assert (faults(Pairs(n, n, 0, 0), FASTER) == []) == (least >= LEAST_POINTS) == (n >= 133)


def test_spc_50_a_pair_fails_by_what_it_loses_and_by_its_time() -> None:
    same = Pairs(200, 150, 0, 0)
    assert faults(same, FASTER) == []
    (lost,) = faults(Pairs(200, 140, 10, 0), FASTER)
    assert lost.startswith("the loss may be 8.") and lost.endswith(" points of right answers, expected at most 2")
    for few in (Pairs(50, 40, 0, 0), Pairs(100, 80, 1, 0), Pairs(100, 80, 2, 0)):
        assert faults(few, FASTER)[0].endswith(": more questions may show less")
    assert "more questions" not in faults(Pairs(100, 80, 3, 0), FASTER)[0]
    slow = FirstToken(4, 8192, 3.0, 3.5)
    assert faults(same, [*FASTER, slow]) == ["with 4 at once the first token takes 3.50 s instead of 3.00 s"]
    assert faults(same, [FirstToken(1, 8192, 3.0, 3.0)]) != []


@pytest.mark.parametrize("make", [needles, facts])
@pytest.mark.parametrize("n_tokens", [400, 3000])
def test_spc_50_a_fact_is_hidden_once_at_each_depth(make: Any, n_tokens: int) -> None:
    cases = list(make(9, n_tokens, words))
    assert cases == list(make(9, n_tokens, words)) and len({case.prompt for case in cases}) == 9
    depths = []
    for case in cases:
        text, _, question = case.prompt.rpartition("\n\n")
        (answer,) = case.answers
        subject = question.split()[5].rstrip("?") if case.kind == "needle" else " ".join(question.split()[4:6])
        facts_of_it = [each for each in text.split(". ") if f" {subject} " in f" {each} " and answer in each]
        assert len(facts_of_it) == 1 and answer not in question
        depths.append(text.index(facts_of_it[0]) / len(text))
        assert n_tokens * 0.9 <= words(case.prompt) <= n_tokens * 1.05 + 10
    assert depths == sorted(depths) and depths[0] < 0.2 and depths[-1] > 0.8


def test_spc_50_an_answer_has_the_words_whole_and_in_any_case() -> None:
    assert is_right("It is OSLO.", ["oslo"]) and is_right("(4711)", ["12", "4711"])
    assert not any(is_right(text, ["471", "Ulm"]) for text in ("4711", "Ulma", "", "71"))
    asked = [Question("fact", "…", ("Ulm",))] * 4
    answers = [("Ulm", "Ulm"), ("Ulm", "Riga"), ("", "Ulm"), ("", "")]
    paired = [PairedAnswer(question, 9, 3, *both) for question, both in zip(asked, answers, strict=True)]
    assert pairs_of(paired) == Pairs(4, 1, 1, 1)


def test_spc_50_the_record_names_both_models_by_hash_and_has_each_measurement(call: Call, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"prompt": "The sun is warm. " * 60 + "Is the sun warm?", "answers": ["yes", "warm"]}))
    few = ("--needles", "2", "--facts", "1", "--tokens", "300", "--concurrency", "1,2", "--reps", "1")
    spine = ("--answer-tokens", "4", "--set", "sparse_prefill.backbone=0.1")
    status, out, err = call("certify", *few, *spine, "--questions", str(own), "-o", "record.json", "--json")
    assert status == 1, err
    record = json.loads(out)
    assert json.loads((tmp_path / "record.json").read_text()) == record
    for name, path in (("model", demo_model_path()), ("draft", demo_draft_model_path())):
        assert record[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["settings"] == {"keep": 0.3, "backbone": 0.1, "anchors": 1}
    assert [(each["kind"], each["questions"]) for each in record["kinds"]] == [
        ("needle", 2),
        ("fact", 1),
        ("question", 1),
    ]
    for kind in record["kinds"]:
        for whole, part in zip(kind["prompt_tokens"], kind["evaluated_tokens"], strict=True):
            assert 0.3 * whole <= part <= 0.3 * whole + 4 * 32
    assert [each["concurrency"] for each in record["first_token"]] == [1, 2]
    assert all(min(each["seconds_whole"], each["seconds_part"]) > 0 for each in record["first_token"])
    assert not record["certified"] and "the loss may be" in record["faults"][0]  # of four questions


def test_spc_50_the_table_ends_with_the_verdict(call: Call) -> None:
    few = ("--needles", "2", "--facts", "0", "--tokens", "200,300", "--concurrency", "1", "--reps", "1")
    status, out, _ = call("certify", *few)
    lines = [line.split() for line in out.splitlines()]
    assert (
        status == 1 and lines[0][0] == "questions" and lines[1][:2] == ["needle", "2"] and lines[2][:2] == ["all", "2"]
    )
    assert out.splitlines()[-1].startswith("not certified: the loss may be")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--needles", "0", "--facts", "0"), 64, "--questions: no question, expected one of"),
        (
            ("--needles", "0", "--facts", "1", "--tokens", "300", "--set", "sparse_prefill.keep=1"),
            64,
            "whole: keep_all",
        ),
        (("--needles", "1,2"), 64, "expected one number"),
        (("--needles", "1", "--facts", "0", "--tokens", "2000"), 64, "context"),
    ],
)
def test_spc_50_what_cannot_be_measured_is_refused(call: Call, words: Sequence[str], status: int, said: str) -> None:
    found, out, err = call("certify", *words)
    assert (found, out) == (status, "")
    assert said in err


@pytest.mark.parametrize(
    "line", ['{"prompt": "a"}', '{"prompt": 1, "answers": ["a"]}', '{"prompt": "a", "answers": [""]}', "[1]"]
)
def test_spc_50_a_question_without_answers_names_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"prompt": "a", "answers": ["b"]}\n' + line + "\n")
    with pytest.raises(Error, match=r"line 2: expected an object with prompt, a text, and answers"):
        read_questions(path)
    path.write_text('{"prompt": "a", "answers": ["b", "c"]}\n')
    assert read_questions(path) == [Question("question", "a", ("b", "c"))]
