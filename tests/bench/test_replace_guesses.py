"""A draft model whose guesses are replaced by right ones at a given rate."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.models import demo_draft_model_path, demo_model_path
from support.command_line import FOUND_IN

COMMAND = Path(__file__).with_name("replace_guesses.py")


@pytest.mark.long
def test_spc_30_guesses_are_right_at_the_given_rate(tmp_path: Path) -> None:
    """Whatever the draft model guesses."""
    replay = tmp_path / "answers.jsonl"
    replay.write_text(json.dumps({"kind": "text", "prompt": list(range(300, 340)), "answer": list(range(400, 480))}))
    words = [demo_model_path(), "--draft", demo_draft_model_path(), "--replay", replay, "--rates", "0,1,0.5"]
    ran = subprocess.run(
        [sys.executable, COMMAND, *map(str, words), "--tokens", "80", "--threads", "1", "--always"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(FOUND_IN)},
    )  # fmt: skip
    answers = {line["rate"]: line for line in map(json.loads, re.findall(r"^\{.*\}$", ran.stdout, re.MULTILINE))}
    assert answers[0]["accepted"] == 0 < answers[0]["drafted"]
    assert answers[1]["accepted"] == answers[1]["drafted"] > 40
    assert 0 < answers[0.5]["accepted"] < answers[0.5]["drafted"]
    for line in answers.values():
        assert line["gain"] == pytest.approx(line["seconds_without"] / line["seconds_with"])
    assert ran.stdout.count("median gain") == 3
