"""Builds conf/Containerfile with buildah, which needs no daemon, and writes the image as an archive."""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.checkout import ROOT, Checkout, ReleaseError, export, read_checkout
from release.images import bill_of, image_name

CONTAINERFILE = "conf/Containerfile"
NAME = "localhost/imp"


@dataclass(frozen=True)
class Buildah:
    """buildah with a storage of images."""

    options: Sequence[str] = ()  # where the storage is, for each command
    isolation: Sequence[str] = ()  # how a build and a container run

    def run(self, command: str, *words: str, folder: Path | None = None) -> str:
        """Runs a command; returns what it prints."""
        isolation = self.isolation if command in ("bud", "run") else ()
        command_line = ["buildah", *self.options, command, *isolation, *words]
        ran = subprocess.run(command_line, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            printed = f"{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
            raise ReleaseError(f"{' '.join(command_line)}: exit status {ran.returncode}\n{printed}")
        return ran.stdout.strip()

    def build(self, source: Path, revision: str, more: Sequence[str] = ()) -> None:
        """Builds the image NAME of the sources in a folder."""
        # The format of OCI has no HEALTHCHECK.
        words = ["--format", "docker", "-f", CONTAINERFILE, "--build-arg", f"REVISION={revision}", "-t", NAME]
        self.run("bud", *more, *words, ".", folder=source)

    def config(self) -> dict[str, Any]:
        """Returns the image's configuration as docker writes it: `config` has what a container gets."""
        found: dict[str, Any] = json.loads(self.run("inspect", "--type", "image", NAME))["Docker"]
        return found

    def save(self, version: str, source: Path, folder: Path) -> Path:
        """Writes the image and its bill of materials into a folder; returns the archive.

        The tool that writes the bill is in `source`. The image's Python runs it, and so lists what the image has.
        """
        archive = folder / image_name(version, self.config()["architecture"])
        container = self.run("from", "--pull-never", NAME)
        tool = "/source/tools/write_bill_of_materials.py"
        volume = ("--volume", f"{source}:/source:ro")
        bill_of(archive).write_text(self.run("run", *volume, container, "--", "python", tool, "--installed") + "\n")
        self.run("rm", container)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            plain = Path(scratch) / "image.tar"
            self.run("push", NAME, f"docker-archive:{plain}:{NAME}:{version}")
            with plain.open("rb") as read, gzip.GzipFile(archive, "wb", compresslevel=6, mtime=0) as written:
                shutil.copyfileobj(read, written, 1 << 20)
        return archive


def main() -> int:
    """Builds the image of the commit and writes it."""
    parser = argparse.ArgumentParser(prog="tools/release_image.py", description="Build the image of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "image", help="a folder, which is emptied")
    arguments = parser.parse_args()
    try:
        archive = _build(read_checkout(), Buildah(), arguments.out.resolve())
    except ReleaseError as error:
        print(f"tools/release_image.py: {error}", file=sys.stderr)
        return 1
    print(f"{archive}\n{bill_of(archive)}")
    return 0


def _build(checkout: Checkout, buildah: Buildah, folder: Path) -> Path:
    """Fills an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch) / "source"
        export(checkout, source)
        buildah.build(source, checkout.commit)
        return buildah.save(checkout.version, source, folder)
