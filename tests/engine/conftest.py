"""Engines over a script, on a device that the host waits for and on one that runs asynchronously."""

from __future__ import annotations

import pytest

from support.script_engine import ScriptEngine


@pytest.fixture(params=[False, True], ids=["waited-for", "ahead"])
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the engine may start a step before it has read the previous one; no result may depend on it."""
    monkeypatch.setattr(ScriptEngine, "ahead", request.param)
    return bool(request.param)
