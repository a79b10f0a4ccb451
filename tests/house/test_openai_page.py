"""docs/openai.md has the current tables of request fields."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_openai_page", ROOT / "tools" / "write_openai_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_oai_10_the_page_is_fresh(tool: ModuleType) -> None:
    page = tool.PAGE.read_text()
    assert tool.filled(page) == page


def test_oai_10_a_page_that_is_not_fresh_is_found(tool: ModuleType) -> None:
    page = tool.PAGE.read_text()
    assert tool.filled(page.replace("| `top_k` |", "| `top_q` |")) == page


def test_oai_10_every_table_is_on_the_page(tool: ModuleType) -> None:
    page = tool.PAGE.read_text()
    assert [name for name in tool.TABLES if f"<!-- fields: {name} -->" not in page] == []
    for table in tool.TABLES.values():
        assert [field for field in table if f"`{field}`" not in page] == []
