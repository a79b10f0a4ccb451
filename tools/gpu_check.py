"""One run on a machine with a GPU: builds, checks, measures, compares, and writes the ledger.

    python tools/gpu_check.py --out build/gpu_check             # all of it, in less than nine minutes
    python tools/gpu_check.py --only q8_0_dp4a,q4_k_imma        # only these kernels
    python tools/gpu_check.py --stages probe,build,numerics     # only these stages
    python tools/gpu_check.py --dry                             # every stage with small cases on the emulated device

    python tools/gpu_check.py --gather build/wheels 3.12        # packages for a machine with such a Python
    python tools/gpu_check.py --wheels build/wheels             # uses them on that machine

Only --gather downloads anything. Besides what imp needs, the machine must have nvcc, CMake, ninja, PyTorch and
transformers. The exit status is 0 only if every required stage passed.
"""

import sys

from gpu_check.main import main

if __name__ == "__main__":
    sys.exit(main())
