"""Builds conf/Containerfile with buildah, in a storage of its own and without a daemon; makes the base if need be."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from image.pip_settings import pip_settings, places
from image.transcript import ImageError, run, say
from release.checkout import ROOT, Checkout, ReleaseError
from release.image_build import CONTAINERFILE, NAME, Buildah

# The release of Debian that has this Python. Debian 13 is also what the real base is made of.
RELEASES = {"3.13": "trixie", "3.11": "bookworm"}
# As in the real base: `python` and `pip` on the PATH, Python's headers, no compiler.
PACKAGES = ("python3-dev", "python3-venv", "python3-pip", "python-is-python3", "ca-certificates")
SMALL = ("--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*")
MAKE_SECONDS = 1800.0


def python_of(containerfile: str) -> str:
    """Returns the version of Python that a container file builds on."""
    (version,) = re.findall(r"^ARG PYTHON=(\S+)$", containerfile, re.MULTILINE)
    return str(version)


def storage_in(folder: Path) -> Buildah:
    """Returns a storage of images of this check alone, which needs neither a daemon nor a file system of layers."""
    folders = ("--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")
    return Buildah(folders, ("--isolation", "chroot"))


def provide_base(buildah: Buildah, scratch: Path) -> None:
    """Pulls the base of the container file, or makes a stand-in with its name."""
    python = python_of((ROOT / CONTAINERFILE).read_text())
    base = f"docker.io/library/python:{python}-slim"
    try:
        buildah.run("pull", "--quiet", base)
    except ReleaseError as error:
        say(f"{base} cannot be pulled: {str(error).strip().rpartition(': ')[2]}")
        _make_base(buildah, base, python, scratch)
    else:
        say(f"{base} was pulled")


def _make_base(buildah: Buildah, base: str, python: str, scratch: Path) -> None:
    if python not in RELEASES:
        raise ImageError(f"Python {python}: expected one of Debian's: {', '.join(RELEASES)}")
    archive = str(scratch / "base.tar")
    included = f"--include={','.join(PACKAGES)}"
    words = ["mmdebstrap", "--quiet", "--variant=apt", *SMALL, "--dpkgopt=force-unsafe-io", included]
    run([*words, RELEASES[python], archive, *debian_mirror()], seconds=MAKE_SECONDS)
    container = buildah.run("from", "scratch")
    buildah.run("add", "--quiet", container, archive, "/")
    buildah.run("config", "--cmd", '["python3"]', container)
    buildah.run("commit", "--quiet", "--rm", container, base)
    say(f"made in its place of Debian {RELEASES[python]}, which has Python {python}: {', '.join(PACKAGES)}")


def build(buildah: Buildah, revision: str, scratch: Path) -> None:
    """Builds the container file as it is, with pip's settings of this machine."""
    settings = pip_settings()
    config = scratch / "pip.conf"
    config.write_text(settings)
    seen = {str(place): place for place in places(settings)} | {"/etc/pip.conf": config}
    volumes = [f"--volume={source}:{target}:ro" for target, source in seen.items()]
    say(f"$ buildah bud --isolation chroot --format docker -f {CONTAINERFILE} --build-arg REVISION={revision} .")
    buildah.build(ROOT, revision, ["--pull-never", "--layers=false", *volumes])


def has_image(buildah: Buildah) -> bool:
    """Returns whether the storage has the image already."""
    try:
        buildah.config()
    except ReleaseError:
        return False
    return True


def root_of(buildah: Buildah) -> Path:
    """Returns the folder with the files of a new container."""
    return Path(buildah.run("mount", buildah.run("from", "--pull-never", NAME)))


def debian_mirror() -> Sequence[str]:
    """Returns the address from which this machine's apt takes Debian; empty if it takes none, for the usual one."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.findall(r"^(\S+/debian)/? Debian$", listed, re.MULTILINE)
    return found[:1]


def config_problems(config: dict[str, Any], checkout: Checkout) -> list[str]:
    """Returns how the configuration of the image differs from what conf/Containerfile promises."""
    prefix = "org.opencontainers.image."
    expected = {
        "User": "65532:65532",
        "Entrypoint": ["imp"],
        "Cmd": ["serve", "--listen", "0.0.0.0:50051", "--http", "0.0.0.0:8000"],
        "ExposedPorts": {"50051/tcp": {}, "8000/tcp": {}},
        "StopSignal": "SIGTERM",
        "WorkingDir": "/",
    }
    found = [
        f"{key}: {config.get(key)!r}, expected {value!r}" for key, value in expected.items() if config.get(key) != value
    ]
    health = config.get("Healthcheck") or {}
    if health.get("Test") != ["CMD", "imp", "call", "health"] or not health.get("StartPeriod"):
        found.append(f"Healthcheck: {health!r}, expected imp call health with a start period")
    labels = config.get("Labels") or {}
    wanted = {"title": "imp", "version": checkout.version, "revision": checkout.commit, "licenses": "Apache-2.0"}
    found += [
        f"label {key}: {labels.get(prefix + key)!r}, expected {value!r}"
        for key, value in wanted.items()
        if labels.get(prefix + key) != value
    ]
    environment = dict(line.split("=", 1) for line in config["Env"])
    if not environment["PATH"].startswith("/opt/imp/bin:"):
        found.append(f"PATH: {environment['PATH']}, expected /opt/imp/bin first")
    return found
