"""The run before a release: IMP_RELEASE=1 with `pytest --all`. It repeats more of what a change rarely breaks."""

from __future__ import annotations

import os

IS_RELEASE = os.environ.get("IMP_RELEASE") == "1"
# The time limit of each test there: the longest take some ten minutes on two cores that do nothing else.
SECONDS = 1800


def repetitions(release: int, otherwise: int) -> int:
    """Returns the number of this run: `otherwise` is that of `--all`."""
    return release if IS_RELEASE else otherwise
