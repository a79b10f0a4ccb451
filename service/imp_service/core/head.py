"""The draft head that the settings name: its file, and what is said if there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from imp_service import _core
from imp_service.config import ConfigError
from imp_service.config.settings import Settings
from imp_service.core.errors import ModelError

NAME = "head"


def head_arguments(settings: Settings) -> dict[str, Any]:
    """Arguments of `_core.Model.load` and `_core.plan_model`. Opens the file of the head, if the settings name one."""
    path = settings.speculation.head
    if NAME not in settings.speculation.drafters:
        return {}
    return {"with_own_head": True} if path is None else {"head_file": _open(path)}


def _open(path: str) -> _core.ModelFile:
    try:
        return _core.open_model_file(path)
    except ModelError as error:
        error.message = f"speculation.head: {error.message}"
        error.args = (f"{error.reason}: {error.message}",)
        raise


def head_remarks(settings: Settings, head: str | None, facts: Sequence[Mapping[str, str]]) -> list[str]:
    """What a user has to know of the head that was loaded, or None.

    Raises ConfigError if there is none, and it was to be the only drafter.
    """
    drafters, path = settings.speculation.drafters, settings.speculation.head
    if NAME not in drafters:
        return [] if path is None else ["speculation.head has no effect: speculation.drafters has no head"]
    if head is not None:
        return []
    found = next((fact["value"] for fact in facts if fact["name"] == "head"), "none")
    if len(drafters) == 1:
        expected = "a model that has one, or the path of one as speculation.head"
        raise ConfigError("speculation.drafters", f"head: the model's head is {found}, expected {expected}")
    return [f"speculation.drafters: head has no effect: the model's head is {found}"]
