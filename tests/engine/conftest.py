"""Engines over a script: on a device that the host waits for, on one that runs asynchronously, and with guesses."""

from __future__ import annotations

from typing import Any

import pytest

from support.engine.script_engine import ScriptEngine

KINDS: dict[str, dict[str, Any]] = {
    "waited-for": {},
    "ahead": {"ahead": True},
    "drafts": {"drafts": 0.7, "max_draft_tokens": 5},
    "wrong-drafts-ahead": {"drafts": 0.0, "max_draft_tokens": 2, "ahead": True},
}


@pytest.fixture(params=KINDS)
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the engine may start a step before it has read the previous one; no result may depend on it."""
    for name, value in KINDS[request.param].items():
        monkeypatch.setattr(ScriptEngine, name, value)
    return bool(ScriptEngine.ahead)
