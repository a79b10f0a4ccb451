"""What `imp bench --sparse-prefill` says of given prompts, evaluated as a whole and in part."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service.cli.shell import main
from imp_service.generation.divergence import divergence
from support.oracles.tolerances import DIVERGENCE, SHIFTED_LOGITS

ON = ["--set", "sparse_prefill.enabled=true"]
FEW = ["bench", "--prefill", "0", "--decode", "12", "--threads", "1", "--reps", "2"]


def prompt_file(folder: Path, *prompts: Any) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return str(path)


def random_prompt(n_tokens: int) -> list[int]:
    numbers = random.Random(n_tokens)
    return [numbers.randrange(300, 900) for _ in range(n_tokens)]


def results(capfd: pytest.CaptureFixture[str], path: str, *arguments: str) -> list[Any]:
    assert main([*FEW, "--sparse-prefill", path, *ON, *arguments, "--json"]) == 0
    found: list[Any] = json.loads(capfd.readouterr().out)["sparse_prefill"]
    return found


@pytest.mark.long
def test_spc_47_the_bench_compares_a_part_of_each_prompt_with_all_of_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = prompt_file(tmp_path, random_prompt(200), random_prompt(330))
    for result, n_tokens in zip(results(capfd, path), (200, 330), strict=True):
        assert result["prompt_tokens"] == n_tokens and result["fallback_reason"] == ""
        # Chunks of 32 tokens: the share to keep (0.3), and at most the first and the last chunk besides.
        assert 0.3 * n_tokens <= result["evaluated_tokens"] <= 0.3 * n_tokens + 3 * 32
        assert result["divergence"] > 0 and 0 <= result["equal_tokens"] <= result["output_tokens"] == 12
        times = [result[part]["samples"] for part in ("seconds_whole", "seconds_part", "speed_up")]
        assert [len(part) for part in times] == [2, 2, 2] and min(map(min, times)) > 0
        assert times[2] == [whole / part for whole, part in zip(*times[:2], strict=True)]


@pytest.mark.long
def test_spc_47_all_of_a_prompt_in_its_place_gives_equal_answers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = prompt_file(tmp_path, random_prompt(200), "Once upon a time there was a small dog. " * 8)
    for result in results(capfd, path, "--set", "sparse_prefill.keep=1"):
        assert result["fallback_reason"] == "keep_all" and result["evaluated_tokens"] == result["prompt_tokens"]
        assert (result["divergence"], result["equal_tokens"]) == (0, 12)


def test_spc_47_the_divergence_is_that_of_the_definition() -> None:
    numbers = np.random.default_rng(5)
    for _ in range(20):
        exact, approximate = numbers.normal(0, 3, (2, 50)).astype(np.float32)
        p, q = (np.exp(each, dtype=np.float64) / np.exp(each, dtype=np.float64).sum() for each in (exact, approximate))
        assert divergence(exact, approximate) == pytest.approx(np.sum(p * np.log(p / q)), rel=DIVERGENCE)
        assert divergence(exact, approximate) != pytest.approx(divergence(approximate, exact), rel=DIVERGENCE)
        assert divergence(exact, exact + np.float32(4)) == pytest.approx(0, abs=SHIFTED_LOGITS)


@pytest.mark.long
def test_spc_47_the_table_names_its_columns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = prompt_file(tmp_path, random_prompt(200))
    assert main([*FEW, "--sparse-prefill", path, *ON]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert any("first token, whole: ms" in line and "divergence" in line for line in lines)
    assert sum(line.startswith("prompt 200") for line in lines) == 1


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("line", "settings", "said"),
    [
        ("{}\n", ON, "line 1: 'prompt'; expected an object with prompt"),
        ("[1]\n", ON, "line 1: list indices"),
        ("{\n", ON, "line 1: Expecting property name"),
        ('{"prompt": []}\n', ON, "line 1: expected at least one token"),
        ('{"prompt": [99999]}\n', ON, "ids below"),
        (json.dumps({"prompt": [5] * 600}), ON, "612 tokens, the context is 512"),
        ('{"prompt": [5]}\n', [], "given, but sparse_prefill.enabled is off"),
    ],
)
def test_spc_47_the_bench_names_what_it_cannot_measure(
    line: str, settings: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    assert main([*FEW, "--sparse-prefill", str(path), *settings]) != 0
    assert said in capfd.readouterr().err


def test_spc_47_without_an_answer_there_is_nothing_to_compare(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = prompt_file(tmp_path, random_prompt(200))
    assert main(["bench", "--prefill", "0", "--decode", "0", "--threads", "1", "--sparse-prefill", path, *ON]) != 0
    assert "sparse_prefill: given, but decode is 0" in capfd.readouterr().err
