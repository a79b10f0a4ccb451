"""Builds the image of conf/Containerfile and tries it: `python tests/image`; exit status 1 if it is bad.

It needs root, Debian's packages buildah and runc, and curl. If the base image cannot be pulled, Debian's package
mmdebstrap makes a stand-in for it. No Python package but imp is needed. The images are in a folder for temporary files,
which is removed; `--storage FOLDER` keeps them there, and builds no image if the folder has one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

# Replaces this folder, whose modules are imported by full names.
sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "tools"))

from image import checks  # noqa: E402
from image.image import build, config_problems, has_image, provide_base, root_of, storage_in  # noqa: E402
from image.pod import read_pod  # noqa: E402
from image.transcript import ImageError, expect, run, say, step  # noqa: E402
from release.checkout import ROOT, Checkout, ReleaseError, git, read_version  # noqa: E402
from release.image_build import NAME, Buildah  # noqa: E402

PROGRAMS = ("buildah", "runc", "curl", "nsenter")
# The demo model on one thread. The drain is long enough for a late call on a busy machine.
SETTINGS = ("device.threads=1", 'listen.http=["[::]:8000"]', "drain.delay=15s")


def main() -> int:
    """Builds and tries the image."""
    parser = argparse.ArgumentParser(
        prog="python tests/image", description="Build conf/Containerfile and try the image."
    )
    parser.add_argument("--storage", type=Path, metavar="FOLDER", help="keep the images there (default: keep nothing)")
    arguments = parser.parse_args()
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        print(f"tests/image needs root and {', '.join(PROGRAMS)}; missing: {missing or 'root'}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="imp-image-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # the user of the container reads its volumes
        storage = (arguments.storage or folder / "storage").resolve()
        storage.mkdir(parents=True, exist_ok=True)
        try:
            check(storage_in(storage), folder)
        except (ImageError, ReleaseError, subprocess.TimeoutExpired) as error:
            print(f"\ntests/image: {error}", file=sys.stderr)
            return 1
    print("\nthe image is good", flush=True)
    return 0


def check(buildah: Buildah, folder: Path) -> None:
    """Runs every step, or raises ImageError."""
    checkout = Checkout(ROOT, git(ROOT, "rev-parse", "HEAD"), read_version())
    if has_image(buildah):
        revision = buildah.config()["config"]["Labels"]["org.opencontainers.image.revision"]
        say(f"the storage has an image of commit {revision}")
        checkout = replace(checkout, commit=revision)
    else:
        with step("the base image"):
            provide_base(buildah, folder)
        with step("the build"):
            build(buildah, checkout.commit, folder)
    with step("the image"):
        image = buildah.config()["config"]
        say(json.dumps({key: image.get(key) for key in ("User", "Entrypoint", "Cmd", "ExposedPorts", "StopSignal")}))
        expect(config_problems(image, checkout), [], "as conf/Containerfile says, with labels and HEALTHCHECK")
        root = root_of(buildah)
        checks.check_files(root)
    with step("its files in a release"):
        checks.check_release(buildah, checkout, folder)
    with step("started like `podman run --read-only --cap-drop all imp`"):
        checks.check_like_podman(image, root, folder / "podman", checkout.commit)
    with step("started like a pod of `imp k8s`"):
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        manifests = run([sys.executable, "-m", "imp_service", "k8s", "--image", NAME, *words])
        pod = read_pod(manifests)
        say(f"$ imp k8s {' '.join(words)}  # limits: {pod.confinement}")
        checks.check_pod(image, root, folder / "pod", pod)


if __name__ == "__main__":
    sys.exit(main())
