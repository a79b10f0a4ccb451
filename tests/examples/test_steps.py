"""The examples that decide every step: what they print is what the model says, and the session is freed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.patience import BUILD_SECONDS, HANGS_AFTER

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "demo_golden.json").read_text())
STORY = GOLDEN["models"]["target"]["prompts"][0]
STEPS = 24
# The first to need an example in C++ builds it.
pytestmark = pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)


@pytest.mark.sweep(quick=lambda language, target: (language, target) == ("node", "tcp"))
@pytest.mark.parametrize("language", ["node", "cpp"])
def test_rpc_29_a_loop_of_steps_says_what_the_model_says(language, target, run):
    result = run(language, "steps", target, STORY["text"], str(STEPS))
    assert result.returncode == 0, result.stderr
    text = result.stdout.removesuffix("\n")
    assert len(text) > 60 and STORY["output_text"].startswith(text)
    mismatch, end = result.stderr.splitlines()
    # The last token is sampled and not yet held.
    held = len(STORY["prompt_ids"]) + STEPS - 1
    assert mismatch.startswith("ABORTED POSITION_MISMATCH: ")
    assert end == f"[{held} tokens held, released: true]"
