"""Runs the checks of a change, stage by stage: `.ci/run --help`.

.ci/stages.toml lists the stages and their tiers, .ci/stages has a script for each. Only Python's own library is needed.
"""

import sys
from pathlib import Path

from ci.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
