"""The examples that control every step: they print the model's output and free the session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.run.patience import BUILD_SECONDS, HANGS_AFTER

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "demo_golden.json").read_text())
STORY = GOLDEN["models"]["target"]["prompts"][0]
STEPS = 24
# Java lacks Unix sockets, as in test_generate.
CALLS = [(language, target) for language in ("node", "cpp", "go", "ruby") for target in ("tcp", "unix")]
CALLS.append(("java", "tcp"))
QUICK = {("node", "tcp"), ("ruby", "unix")}
# The first test of a compiled language builds its examples.
pytestmark = pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)


@pytest.mark.sweep(quick=lambda language, target: (language, target) in QUICK)
@pytest.mark.parametrize(("language", "target"), CALLS, indirect=["target"])
def test_rpc_29_cnt_4_a_loop_of_steps_says_what_the_model_says(language, target, run):
    result = run(language, "steps", target, STORY["text"], str(STEPS))
    assert result.returncode == 0, result.stderr
    text = result.stdout.removesuffix("\n")
    assert len(text) > 60 and STORY["output_text"].startswith(text)
    mismatch, end = result.stderr.splitlines()
    # The last token is sampled, but the session does not hold it yet.
    held = len(STORY["prompt_ids"]) + STEPS - 1
    assert mismatch.startswith("ABORTED POSITION_MISMATCH: ")
    assert end == f"[{held} tokens held, released: true]"
