"""Python runs this file at the start of every process that a trial starts, so that commands have the mutant too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[2])

if "IMP_MUTANT" in os.environ:
    sys.path.append(TESTS)
    from mutants.mutated_import import install_for_children

    install_for_children(os.environ["IMP_MUTANT"])
    sys.path.remove(TESTS)
