"""imp's encoding of pictures is measured beside llama.cpp's."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.deploy.offered_commands import compared


@pytest.mark.long
def test_the_encoding_of_pictures_is_timed_tower_by_tower(tmp_path: Path) -> None:
    words = ("--engines", "imp", "--types", "q8_0", "--reps", "1", "--threads", "1")
    ran, report = compared("images", *words, report=tmp_path / "report.json")
    assert ran.returncode == 0, ran.stderr
    assert [(case["tower"], case["type"]) for case in report["cases"]] == [("smolvlm", "q8_0"), ("qwen3-vl", "q8_0")]
    assert all(case["s"]["median"] > 0 for case in report["cases"])
