"""imp is measured beside other engines of vectors, which must make the same ones."""

from __future__ import annotations

from pathlib import Path

from support.deploy.offered_commands import compared
from support.models.worded_encoders import write_encoder


def test_vectors_are_timed_case_by_case(tmp_path: Path) -> None:
    model = write_encoder(tmp_path / "encoder")
    words = (model, "--engines", "imp", "--batches", "1,3", "--tokens", "4,8", "--reps", "1", "--threads", "1")
    ran, report = compared("vectors", *words, report=tmp_path / "report.json")
    assert ran.returncode == 0, ran.stderr
    assert [(case["texts"], case["tokens"]) for case in report["cases"]] == [(1, 4), (1, 8), (3, 4), (3, 8)]
    assert all(case["texts_per_s"]["median"] > 0 for case in report["cases"])


def test_an_engine_that_is_not_installed_is_left_out(tmp_path: Path) -> None:
    model = write_encoder(tmp_path / "encoder")
    words = (model, "--engines", "imp,nosuch", "--batches", "1", "--tokens", "4", "--reps", "1", "--threads", "1")
    ran, report = compared("vectors", *words, report=tmp_path / "report.json")
    assert ran.returncode == 0, ran.stderr
    assert list(report["left_out"]) == ["nosuch"]
