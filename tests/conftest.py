"""Set before numpy is first imported: its threads would spin beside the ones under test, on matrices far too small."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
