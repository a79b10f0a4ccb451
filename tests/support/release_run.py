"""The run before a release, with IMP_RELEASE=1: it repeats more of what a change rarely breaks."""

from __future__ import annotations

import os

IS_RELEASE = os.environ.get("IMP_RELEASE") == "1"


def repetitions(release: int, otherwise: int) -> int:
    """Returns the number of this run: `otherwise` is that of `--all`."""
    return release if IS_RELEASE else otherwise
