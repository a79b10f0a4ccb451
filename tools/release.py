"""Makes the files of a release from a clean checkout, tries them, and says how to publish them. It publishes nothing.

    python3 tools/release.py                    # a source distribution, and a wheel without and one with CUDA code
    python3 tools/release.py --without-cuda     # only the wheel without: needs no nvcc
    python3 tools/release.py --wheel FILE …     # checks and tries wheels that were built of this commit elsewhere

It needs Python, git and a C++ compiler, and installs the other tools in a virtual environment of its own. The files are
in build/release/dist.
"""

import sys

from release.main import main

if __name__ == "__main__":
    sys.exit(main())
