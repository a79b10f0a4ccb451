"""Makes and tests the files of a release from a clean checkout, and prints how to publish them. It publishes nothing.

    python3 tools/release.py                    # a source distribution, and a wheel without and one with CUDA code
    python3 tools/release.py --without-cuda     # only the wheel without CUDA code; needs no nvcc
    python3 tools/release.py --wheel FILE …     # checks and tests wheels of this commit that were built elsewhere

It needs Python, git and a C++ compiler, and installs other tools in its own virtual environment. It writes the files to
build/release/dist.
"""

import sys

from release.main import main

if __name__ == "__main__":
    sys.exit(main())
