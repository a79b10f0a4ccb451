"""Generations of asyncio tasks that end, fail or are left at random leave nothing on either side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import HANGS_AFTER
from support.release_run import repetitions
from support.served import Served

N_GENERATIONS = repetitions(10_000, 1_500)
PROGRAM = Path(__file__).parents[3] / "support" / "leaving_tasks.py"


def left_by(served: Served, n: int, seed: int) -> dict[str, int]:
    """Runs `n` generations in their own process, since grpc.aio needs the only event loop of a process."""
    words = [
        sys.executable,
        "-X",
        "dev",
        "-W",
        "error",
        str(PROGRAM),
        served.address,
        str(n),
        str(seed),
        str(HANGS_AFTER / 2),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=2 * HANGS_AFTER, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    told = json.loads(ran.stdout)
    assert (told["tasks"], told["complaints"]) == ([], [])
    served.wait_for_calls()
    served.wait_for_rest()
    ends: dict[str, int] = told["ends"]
    assert sum(ends.values()) == n
    return ends


@pytest.mark.long
def test_cnt_3_thousands_of_generations_leave_nothing(served: Served) -> None:
    ends = left_by(served, N_GENERATIONS, 4)
    assert ends.keys() >= {"whole", "cancelled", "timeout", "closed", "dropped", "deadline"}
