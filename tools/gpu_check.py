"""One run on a machine with a GPU: builds, checks, measures, compares, and writes the ledger.

    python tools/gpu_check.py --out build/gpu_check             # all of it, in less than nine minutes
    python tools/gpu_check.py --only q8_0_dp4a,q4_k_imma        # these kernels alone
    python tools/gpu_check.py --stages probe,build,numerics     # these stages alone
    python tools/gpu_check.py --dry                             # every stage in small on the emulated device

    python tools/gpu_check.py --gather build/wheels 3.12        # packages for a machine with such a Python
    python tools/gpu_check.py --wheels build/wheels             # there

But for --gather it downloads nothing. Beside what imp needs, the machine has nvcc, CMake, ninja, PyTorch and
transformers. The status is 0 only where every required stage passed.
"""

import sys

from gpu_check.main import main

if __name__ == "__main__":
    sys.exit(main())
