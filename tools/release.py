"""Makes and tests the files of a release from a clean checkout, and prints how to publish them. It publishes nothing.

    python3 tools/release.py                    # a source distribution, and a wheel without and one with CUDA code
    python3 tools/release.py --without-cuda     # only the wheel without CUDA code; needs no nvcc
    python3 tools/release.py --wheel FILE …     # checks and tests wheels of this commit that were built elsewhere
    python3 tools/release.py --image FILE …     # adds images of this commit that tools/release_image.py built

It needs Python, git and a C++ compiler, and installs other tools in its own virtual environment. It writes the files to
build/release/dist, and the changes of this version to build/release/notes.md. .github/workflows/release.yml runs it
after a push of the tag, with wheels and images of both processors, and drafts a release of the files.
"""

import sys

from release.main import main

if __name__ == "__main__":
    sys.exit(main())
