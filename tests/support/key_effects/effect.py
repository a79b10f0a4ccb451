"""What one key of imp.conf changes: a value, where to look, and what the look shows without and with the value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Observes something that settings (texts of --set) decide. The observer may use the folder, which is empty.
Observe = Callable[[Path, tuple[str, ...]], Any]

FOLDER = "{folder}"


@dataclass(frozen=True)
class Effect:
    """One value of one key, and its effect."""

    # FOLDER, here and in `also`, is the observer's folder.
    value: str
    observe: Observe
    without: Any
    seen: Any
    # Other settings that both observations need for the effect to show.
    also: tuple[str, ...] = ()
    # In place of the name that a user chooses.
    name: str = "q4_k"
