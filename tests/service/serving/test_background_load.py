"""Loading weights in the background gives the same model, and reports a bad file to every caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from imp_service.config import read_settings
from imp_service.core import ModelError
from imp_service.core.background_load import STOP_SECONDS, WeightsLoad
from imp_service.generation import finish_load
from imp_service.models import demo_model_path

SMALL = ["device.threads=1", "kv.bytes=8MiB"]


def test_weights_in_the_background_become_a_model() -> None:
    weights = WeightsLoad(read_settings(None, SMALL))
    told: list[tuple[int, int]] = []
    model = finish_load(weights, lambda done, total: told.append((done, total)))
    assert model.tokenizer.decode(model.tokenizer.encode("hello")) == "hello"
    assert all(0 < done <= total for done, total in told)
    assert weights.stop(STOP_SECONDS) and model.client.is_closed


def test_a_missing_file_is_raised_to_every_caller(tmp_path: Path) -> None:
    missing = WeightsLoad(read_settings(None, [*SMALL, f"model.path={tmp_path / 'none.gguf'}"]))
    with pytest.raises(ModelError) as of_facts:
        _ = missing.metadata
    with pytest.raises(ModelError) as of_weights:
        missing.outcome.result()
    assert of_facts.value.reason == of_weights.value.reason == "MODEL_MISSING"
    assert missing.stop(STOP_SECONDS)


def test_a_file_that_is_cut_short_is_reported(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    whole = demo_model_path().read_bytes()
    cut.write_bytes(whole[: len(whole) - 4096])
    weights = WeightsLoad(read_settings(None, [*SMALL, f"model.path={cut}"]))
    with pytest.raises(ModelError):
        weights.outcome.result()
    assert weights.stop(STOP_SECONDS)
