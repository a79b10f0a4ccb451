"""What `imp bench` says of guesses ahead: the cost of rows, and known answers without and with guesses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from imp_service.cli.shell import main
from imp_service.core.bench.report import break_even
from support.models.fixed_depth import fixed_depth
from support.oracles.tolerances import BREAK_EVEN

DRAFTING = ["--set", 'speculation.drafters=["ngram"]']
FEW = ["bench", "--prefill", "0", "--threads", "1", "--reps", "2"]


def replay_file(folder: Path, lines: list[dict[str, Any]], name: str = "answers.jsonl") -> str:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def report_of(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*FEW, *arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)["speculation"]


@pytest.mark.long
def test_spc_30_the_cost_of_rows_has_its_break_even(capfd: pytest.CaptureFixture[str]) -> None:
    rows = report_of(capfd, "--decode", "0", "--depth", "0,40", "--speculation")["rows"]
    assert [(row["rows"], row["depth"]) for row in rows] == [
        (n, depth) for depth in (0, 40) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    ]
    for row in rows:
        one = next(each for each in rows if each["rows"] == 1 and each["depth"] == row["depth"])
        assert row["cost"] == pytest.approx(row["seconds"]["median"] / one["seconds"]["median"])
        assert len(row["seconds"]["samples"]) == 2
        assert row["break_even"] == (None if row["rows"] == 1 else break_even(row["cost"], row["rows"] - 1))


@pytest.mark.parametrize(("cost", "n_guesses", "share"), [(1.0, 1, 0.0), (1.5, 1, 0.5), (1.75, 2, 0.5), (3.0, 2, None)])
def test_spc_30_break_even_is_where_a_step_gives_as_many_tokens_in_a_time(
    cost: float, n_guesses: int, share: float | None
) -> None:
    assert break_even(cost, n_guesses) == (share if share is None else pytest.approx(share, abs=BREAK_EVEN))


@pytest.mark.long
@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_spc_30_a_replay_decodes_the_given_answers_both_ways(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Repeated text comes in fewer steps than tokens, however wrong the model finds it; random text does not."""
    lines = [
        {"kind": "copy", "prompt": list(range(300, 360)) * 2, "answer": list(range(300, 360))},
        {"prompt": "Once upon a time there was a small dog.", "answer": " It had a red ball."},
        {"kind": "copy", "prompt": list(range(400, 450)) * 2, "answer": list(range(400, 450))},
    ]
    with fixed_depth():
        replays = report_of(
            capfd, "--decode", "64", "--batch", "1,2", "--replay", replay_file(tmp_path, lines, name), *DRAFTING
        )["replay"]
    assert [(each["kind"], each["streams"]) for each in replays] == [
        ("copy", 1), ("answer", 1), ("copy", 2), ("answer", 2),
    ]  # fmt: skip
    for each in replays:
        assert each["tokens_per_step"] == pytest.approx(each["tokens"] / (each["tokens"] - each["accepted"]))
        n_groups = 2 if (each["kind"], each["streams"]) == ("copy", 1) else 1
        parts = [each[part]["samples"] for part in ("seconds_without", "seconds_with", "speed_up")]
        assert [len(part) for part in parts] == [n_groups] * 3
        assert all(speed_up == without / with_guesses for without, with_guesses, speed_up in zip(*parts, strict=True))
    assert replays[0]["tokens"] == replays[2]["tokens"] == 59 + 49
    assert 0 < replays[0]["accepted"] <= replays[0]["drafted"]


@pytest.mark.long
def test_spc_30_the_tables_name_their_columns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [{"prompt": [300, 301] * 20, "answer": [300, 301] * 10}]
    path = replay_file(tmp_path, lines)
    assert main([*FEW, "--decode", "20", "--speculation", "--replay", path, *DRAFTING]) == 0
    out = capfd.readouterr().out
    assert "rows of one sequence" in out and "worth it from" in out
    assert "answer, batch 1" in out and "speed-up" in out


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ([{"prompt": [1]}], DRAFTING, "line 1: 'answer'; expected an object with prompt and answer"),
        ([{"prompt": [1], "answer": [1]}], DRAFTING, "line 1: expected a prompt, and an answer of at least two tokens"),
        ([{"prompt": [1], "answer": [1, 9999]}], DRAFTING, "line 1: expected token ids below 2048"),
        ([{"prompt": [1], "answer": 7}], DRAFTING, "line 1: neither a text nor a list of token ids"),
        ([{"prompt": [1] * 600, "answer": [1, 2]}], DRAFTING, "602 tokens, the context is 512"),
        ([{"prompt": [1], "answer": [1, 2]}], ["--set", "speculation.drafters=[]"], "speculation.drafters is empty"),
    ],
)
def test_spc_30_a_replay_that_cannot_run_is_refused(
    lines: list[dict[str, Any]], settings: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*FEW, "--decode", "8", "--replay", replay_file(tmp_path, lines), *settings]) in (64, 71)
    assert message in capfd.readouterr().err


def test_spc_30_a_file_that_is_missing_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--replay", str(tmp_path / "none.jsonl"), *DRAFTING]) == 64
    assert "none.jsonl" in capfd.readouterr().err
