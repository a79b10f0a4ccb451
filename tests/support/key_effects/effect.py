"""What setting one key of imp.conf changes: a value, where to look, and what is seen there without and with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Looks at something that settings (texts of --set) decide. The folder is empty, and the observer's to use.
Observe = Callable[[Path, tuple[str, ...]], Any]

FOLDER = "{folder}"


@dataclass(frozen=True)
class Effect:
    """One value of one key, and its effect."""

    # FOLDER in it, and in `also`, is the observer's folder.
    value: str
    observe: Observe
    without: Any
    seen: Any
    # Other settings that both looks need, for the effect to show.
    also: tuple[str, ...] = ()
