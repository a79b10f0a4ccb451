"""OpenVINO GenAI as a peer: every case of the quick scenarios is measured on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from make_model import MODELS, make_model
from support.deploy.offered_commands import compared


def test_imp_and_openvino_are_compared_case_by_case(tmp_path: Path) -> None:
    pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")
    model = make_model(MODELS["tiny"], "q4_k_m", tmp_path / "tiny.gguf")
    words = ("--quick", "--threads", "1", "--reps", "1", "--engines", "openvino")
    _, report = compared("peers", model, *words, report=tmp_path / "report.json")
    assert (report["complete"], report["left_out"]) == (True, {})
    start, *measured = report["cases"]
    assert (start["kind"], list(start["engines"])) == ("start", ["imp", "openvino"])
    cases = [(case["kind"], case["tokens"], case["batch"], case["depth"]) for case in measured]
    assert cases == [("prefill", 64, 1, 0), ("decode", 8, 1, 0), ("decode", 8, 1, 48), ("decode", 8, 4, 0)]
    for case in report["cases"]:
        assert case["refusals"] == {}
        assert {name: min(engine["tokens_per_s"]["samples"]) > 0 for name, engine in case["engines"].items()} == {
            "imp": True,
            "openvino": True,
        }
