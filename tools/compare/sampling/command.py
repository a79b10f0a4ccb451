"""Asks a chat model questions with several samplers, and counts right answers and unlikely tokens.

    python tools/compare sampling FILE [--seeds 3] [--json REPORT]

The questions are in questions.toml: everyday ones, for the share of drawn tokens to which the model gave a probability
below 0.5 %; facts, for the share of answers that contain the fact; and functions, for the share of answers whose code
returns the right results. The code of the answers runs in processes of their own, without limits but one of time. Needs
no package but imp.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compare.options import parser_of
from compare.report import Report
from compare.table import Table

QUESTIONS = tomllib.loads((Path(__file__).parent / "questions.toml").read_text())
UNLIKELY = math.log(0.005)
SECONDS = 10
# The third is what llama.cpp draws with.
SAMPLERS: Mapping[str, Mapping[str, float]] = {
    "temperature 1, whole vocabulary": {"temperature": 1.0, "min_p": 0.0},
    "temperature 0.8, min_p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "llama.cpp: 0.8, top_k 40, top_p 0.95, min_p 0.05": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "temperature 0.7, min_p 0.1": {"temperature": 0.7, "min_p": 0.1},
    "greedy": {"temperature": 0.0},
}
TABLE = Table((("sampler", -50), ("unlikely tokens", 16), ("facts right", 12), ("code right", 11)))


@dataclass(frozen=True)
class Score:
    """What one sampler gave, over all questions and seeds."""

    sampler: str
    unlikely: float
    facts: float
    code: float


def main(words: Sequence[str]) -> None:
    """Prints a row for each sampler."""
    options = _options(words)
    import imp_service

    print(TABLE.heading, flush=True)
    with (
        imp_service.load(options.model) as model,
        Report("sampling", options, model=Path(options.model).name) as report,
    ):
        for name, sampling in SAMPLERS.items():
            score = _score(model, name, sampling, options.seeds)
            print(TABLE.row(name, f"{score.unlikely:.1%}", f"{score.facts:.0%}", f"{score.code:.0%}"), flush=True)
            report.rows["samplers"].append(asdict(score))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sampling", __doc__)
    parser.add_argument("model", metavar="FILE", help="a chat model")
    parser.add_argument("--seeds", type=int, default=3, help="answers to each question, except greedy ones (default 3)")
    return parser.parse_args(words)


def _score(model: Any, name: str, sampling: Mapping[str, float], n_seeds: int) -> Score:
    seeds = range(n_seeds if sampling["temperature"] else 1)

    def answers(asked: Sequence[str], max_tokens: int) -> Iterator[list[Any]]:
        """Yields the answers to each question, all seeds at once."""
        for question in asked:
            message = [{"role": "user", "content": question}]
            options = {**sampling, "max_tokens": max_tokens, "logprobs": True}
            running = [model.chat(message, seed=seed, **options) for seed in seeds]
            yield [each.result() for each in running]

    logprobs = [each for some in answers(QUESTIONS["everyday"], 120) for one in some for each in one.logprobs]
    asked = [question for question, *_ in QUESTIONS["facts"]]
    right = [
        _says(one.text, words)
        for (_, *words), some in zip(QUESTIONS["facts"], answers(asked, 60), strict=True)
        for one in some
    ]
    tasks = QUESTIONS["code"]
    works = [
        _works(one.text, task["checks"])
        for task, some in zip(tasks, answers([task["ask"] for task in tasks], 220), strict=True)
        for one in some
    ]
    share = sum(each < UNLIKELY for each in logprobs) / len(logprobs)
    return Score(name, share, sum(right) / len(right), sum(works) / len(works))


def _says(answer: str, words: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(word)}", answer, re.IGNORECASE) for word in words)


def _works(answer: str, checks: Sequence[str]) -> bool:
    """Whether the code of the answer passes the checks, each in a process."""
    block = re.search(r"```(?:python)?\n(.*?)(?:```|$)", answer, re.DOTALL)
    program = "\n".join([block[1] if block else answer, *(f"assert {check}" for check in checks)])
    try:
        ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0
