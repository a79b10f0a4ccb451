"""The built-in models and their golden data, as fixtures."""

import json
from pathlib import Path
from typing import Any

import pytest

from imp_service.models import demo_draft_model_path, demo_model_path
from support.oracles.numpy_qwen3 import NumpyQwen3

DATA = Path(__file__).parents[2] / "data"
PATHS = {"target": demo_model_path(), "draft": demo_draft_model_path()}


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """The content of tests/data/demo_golden.json, by model name."""
    models: dict[str, Any] = json.loads((DATA / "demo_golden.json").read_text(encoding="utf-8"))["models"]
    assert models.keys() == PATHS.keys()
    return models


@pytest.fixture(scope="session")
def held_out() -> str:
    return (DATA / "held_out.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="session", params=PATHS)
def model_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def model_path(model_name: str) -> Path:
    return PATHS[model_name]


@pytest.fixture(scope="session")
def numpy_model(model_path: Path) -> NumpyQwen3:
    return NumpyQwen3.load(model_path)
