"""A load that is begun early gives what one that is waited for gives, and says what is wrong to all who ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from imp_service.config import load as load_config
from imp_service.core import ModelError
from imp_service.core.early_load import EarlyLoad
from imp_service.generation import finish_load
from imp_service.models import demo_model_path

SMALL = ["device.threads=1", "kv.bytes=8MiB"]


def test_a_model_of_weights_on_their_way_is_that_of_a_load() -> None:
    early = EarlyLoad(load_config(None, SMALL))
    told: list[tuple[int, int]] = []
    model = finish_load(early, lambda done, total: told.append((done, total)))
    assert model.tokenizer.decode(model.tokenizer.encode("hello")) == "hello"
    assert all(0 < done <= total for done, total in told)
    assert early.end() and model.client.is_closed


def test_what_is_wrong_with_a_file_is_told_to_whoever_asks(tmp_path: Path) -> None:
    missing = EarlyLoad(load_config(None, [*SMALL, f"model.path={tmp_path / 'none.gguf'}"]))
    with pytest.raises(ModelError) as of_facts:
        _ = missing.metadata
    with pytest.raises(ModelError) as of_weights:
        missing.result()
    assert of_facts.value.reason == of_weights.value.reason == "MODEL_MISSING"
    assert missing.end()


def test_a_file_that_is_cut_short_is_told(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    whole = demo_model_path().read_bytes()
    cut.write_bytes(whole[: len(whole) - 4096])
    early = EarlyLoad(load_config(None, [*SMALL, f"model.path={cut}"]))
    with pytest.raises(ModelError):
        early.result()
    assert early.end()
