"""Trains the built-in demo model and its draft and writes them into the package, in stages.

Run from the repository root, in this order; every stage but the trainings takes a minute or two:

    python tools/train_demo_model.py prepare
    python -m torch.distributed.run --nproc-per-node 2 tools/train_demo_model.py target --steps N
    python -m torch.distributed.run --nproc-per-node 2 tools/train_demo_model.py draft --steps N
    python tools/train_demo_model.py export
    python tools/train_demo_model.py golden
    python tools/train_demo_model.py report

It needs torch and gguf (extra `peers`), and apt-get (it downloads two Debian packages and installs none).
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.run.needed import PEERS, needs

WORK = Path(__file__).resolve().parents[1] / "build" / "demo_model"
TRAININGS = ("target", "draft")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["prepare", *TRAININGS, "export", "golden", "report"])
    parser.add_argument("--work", type=Path, default=WORK, help="folder of downloads, tokens and checkpoints")
    parser.add_argument("--steps", type=int, help="training steps; may change on resume until the decay has begun")
    arguments = parser.parse_args()
    if (arguments.steps is not None) != (arguments.stage in TRAININGS):
        parser.error("--steps goes with the stages target and draft, and with no other")
    with needs(PEERS):
        from demo_model import stages
    stages.run(arguments.stage, arguments.work, arguments.steps)


if __name__ == "__main__":
    main()
