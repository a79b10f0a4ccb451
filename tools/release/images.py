"""Images of conf/Containerfile: archives for the engines of containers, with their bills of materials."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from release.checkout import Checkout, ReleaseError

LABELS = "org.opencontainers.image."


def take_image(archive: Path, checkout: Checkout, folder: Path) -> Path:
    """Copies an image and its bill into the folder, under the names of a release; returns the archive.

    Raises ReleaseError if the image is not of this commit and version, or if it has no bill.
    """
    config = read_config(archive)
    labels = config["config"].get("Labels") or {}
    for name, expected in (("version", checkout.version), ("revision", checkout.commit)):
        if labels.get(LABELS + name) != expected:
            found = labels.get(LABELS + name)
            raise ReleaseError(f"{archive.name}: the label {LABELS}{name} is {found!r}, expected {expected!r}")
    bill = bill_of(archive)
    if not bill.exists():
        raise ReleaseError(f"{archive.name}: expected its bill of materials at {bill}")
    taken = folder / image_name(checkout.version, config["architecture"])
    shutil.copyfile(archive, taken)
    shutil.copyfile(bill, bill_of(taken))
    return taken


def image_name(version: str, architecture: str) -> str:
    """Returns the file name of an image."""
    return f"imp-image-{version}-{architecture}.tar.gz"


def bill_of(archive: Path) -> Path:
    """Returns the place of an image's bill of materials: next to it."""
    return archive.with_name(archive.name.removesuffix(".gz").removesuffix(".tar") + ".cdx.json")


def how_to_push(version: str, archives: Sequence[Path]) -> list[str]:
    """Returns the commands that push the images of all processors under one name."""
    if not archives:
        return []
    name = f"imp:{version}"
    added = [f"podman manifest add {name} docker-archive:{archive}" for archive in archives]
    pushed = f"podman manifest push --all {name} docker://REGISTRY/{name}"
    return [f"podman manifest create {name}", *added, pushed]


def read_config(archive: Path) -> dict[str, Any]:
    """Returns the configuration of the only image in an archive of `podman save`."""
    try:
        with tarfile.open(archive) as files:
            (manifest,) = _read(files, "manifest.json")
            found: dict[str, Any] = _read(files, manifest["Config"])
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise ReleaseError(f"{archive}: {error}; expected an archive of `podman save` with one image") from error
    return found


def _read(files: tarfile.TarFile, name: str) -> Any:
    file = files.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return json.load(file)
