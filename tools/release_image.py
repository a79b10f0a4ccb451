"""Builds the container image of a release for this machine's processor, with its bill of materials. Publishes nothing.

    python3 tools/release_image.py

It needs git and buildah, and writes build/image/imp-image-VERSION-PROCESSOR.tar.gz and .cdx.json. `tools/release.py
--image` adds the images of all processors to the files of a release.
"""

import sys

from release.image_build import main

if __name__ == "__main__":
    sys.exit(main())
