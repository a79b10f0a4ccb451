"""What tools/release.py refuses: changes without a commit, a version without an entry, files of another commit."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from imp_service import __version__
from imp_service.cli import version
from release.build import check_wheel
from release.checkout import Checkout, ReleaseError, changelog, export, read_checkout, read_version
from release.distributions import CUDA, DISTRIBUTIONS, PLAIN, rename
from release.images import bill_of, image_name, take_image
from release.main import how_to_publish, write_sums
from release.trial import fits_here

ROOT = Path(__file__).resolve().parents[2]
AUTHOR = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **AUTHOR, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    ran = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that the checks read."""
    root = tmp_path / "checkout"
    package = root / "service" / "imp_service"
    package.mkdir(parents=True)
    (root / "csrc").mkdir()
    (package / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (root / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.3\n\n- More.\n\n## 1.2.2\n\n- Less.\n")
    for name in (".gitattributes", "csrc/commit.txt"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "First")
    return root


def make_wheel(folder: Path, name: str, commit: str, *more: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("imp_service/revision.txt", f"{commit}\n")
        for file in more:
            archive.writestr(file, "")
    return path


def test_pkg_3_a_clean_checkout_can_be_released(checkout: Path) -> None:
    found = read_checkout(checkout)
    assert found == Checkout(checkout, git(checkout, "rev-parse", "HEAD"), "1.2.3")
    git(checkout, "tag", "v1.2.3")
    assert read_checkout(checkout) == found  # again, after its publication


def test_pkg_3_changes_without_a_commit_cannot(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    with pytest.raises(ReleaseError, match=r"the checkout has changes, expected none: \?\? new\.py"):
        read_checkout(checkout)


@pytest.mark.parametrize("text", ["# Changes\n", "# Changes\n\n## 1.2.2\n\n- Less.\n", None])
def test_pkg_3_pkg_1_a_version_without_an_entry_cannot(checkout: Path, text: str | None) -> None:
    path = checkout / "CHANGELOG.md"
    path.unlink() if text is None else path.write_text(text)
    git(checkout, "commit", "--quiet", "--all", "--message", "Forget the entry")
    newest = "1.2.2" if text and "1.2.2" in text else None
    with pytest.raises(ReleaseError, match=f"the newest entry of CHANGELOG.md is {newest}, expected one of 1.2.3"):
        read_checkout(checkout)


def test_pkg_3_a_version_of_another_commit_cannot(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.3")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "Second")
    with pytest.raises(ReleaseError, match=r"v1\.2\.3 is another commit"):
        read_checkout(checkout)


def test_pkg_3_the_tag_of_a_commit_is_that_of_its_version(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.4")
    with pytest.raises(ReleaseError, match=r"the commit has the tag v1\.2\.4, expected v1\.2\.3"):
        read_checkout(checkout)


def test_pkg_3_what_is_exported_names_its_commit(checkout: Path, tmp_path: Path) -> None:
    found = read_checkout(checkout)
    export(found, tmp_path / "exported")
    assert (tmp_path / "exported" / "csrc" / "commit.txt").read_text() == f"{found.commit}\n"
    assert (checkout / "csrc" / "commit.txt").read_text() == "$Format:%H$\n"


def test_pkg_3_wheels_from_elsewhere_are_of_this_commit(tmp_path: Path) -> None:
    checkout = Checkout(ROOT, "a" * 40, "1.2.3")
    name = "imp_service-1.2.3-cp311-cp311-linux_x86_64.whl"
    assert check_wheel(make_wheel(tmp_path, name, "a" * 40), checkout) is PLAIN
    cuda = make_wheel(tmp_path, name.replace("imp_service", "imp_service_cuda13"), "a" * 40)
    assert check_wheel(cuda, checkout) is CUDA
    for bad, commit, more, words in (
        (name, "b" * 40, (), f"was built of {'b' * 40}"),
        (name, "", (), "was built of no checkout"),
        (name.replace("1.2.3", "1.2.2"), "a" * 40, (), "expected imp_service-1.2.3-"),
        (name.replace("imp", "pim"), "a" * 40, (), "expected imp_service-1.2.3-"),
        (name, "a" * 40, ("imp_service/_testing.cpython-311.so",), "has the extension for tests"),
    ):
        with pytest.raises(ReleaseError, match=words):
            check_wheel(make_wheel(tmp_path, bad, commit, *more), checkout)


def make_image(path: Path, labels: dict[str, str] | None, *, names: Sequence[str] = ("one",)) -> Path:
    """Writes an archive as `podman save` does, and a bill next to it."""
    config = {"architecture": "arm64", "config": {"Labels": labels}}
    files = {"config.json": config, "manifest.json": [{"Config": "config.json", "RepoTags": [name]} for name in names]}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    bill_of(path).write_text("{}")
    return path


def test_pkg_3_images_from_elsewhere_are_of_this_commit_and_have_a_bill(tmp_path: Path) -> None:
    checkout, dist = Checkout(ROOT, "a" * 40, "1.2.3"), tmp_path / "dist"
    dist.mkdir()
    prefix = "org.opencontainers.image."
    good = {f"{prefix}version": "1.2.3", f"{prefix}revision": "a" * 40}
    image = make_image(tmp_path / "any.tar.gz", good)
    taken = take_image(image, checkout, dist)
    assert {path.name for path in dist.iterdir()} == {"imp-image-1.2.3-arm64.tar.gz", "imp-image-1.2.3-arm64.cdx.json"}
    assert taken.read_bytes() == image.read_bytes()
    for labels, names, words in (
        (good | {f"{prefix}revision": "b" * 40}, ["one"], f"revision is '{'b' * 40}', expected '{'a' * 40}'"),
        (good | {f"{prefix}version": "1.2.2"}, ["one"], r"version is '1\.2\.2', expected '1\.2\.3'"),
        (None, ["one"], "version is None"),
        (good, ["one", "two"], "expected an archive of `podman save` with one image"),
    ):
        with pytest.raises(ReleaseError, match=words):
            take_image(make_image(tmp_path / "bad.tar.gz", labels, names=names), checkout, dist)
    bill_of(image).unlink()
    with pytest.raises(ReleaseError, match=r"any\.tar\.gz: expected its bill of materials at .*any\.cdx\.json"):
        take_image(image, checkout, dist)
    (tmp_path / "text.tar.gz").write_text("no archive")
    with pytest.raises(ReleaseError, match="expected an archive"):
        take_image(tmp_path / "text.tar.gz", checkout, dist)


def test_pkg_2_only_wheels_for_this_machine_are_tried() -> None:
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    machine = os.uname().machine
    assert fits_here(Path(f"imp_service-1-{here}-{here}-manylinux_2_35_{machine}.whl"))
    assert not fits_here(Path(f"imp_service-1-cp39-cp39-manylinux_2_35_{machine}.whl"))
    assert not fits_here(Path(f"imp_service-1-{here}-{here}-manylinux_2_35_s390x.whl"))


def test_pkg_2_both_distributions_come_from_the_same_sources(tmp_path: Path) -> None:
    assert tuple(distribution.name for distribution in DISTRIBUTIONS) == version.DISTRIBUTIONS
    before = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    rename(tmp_path, CUDA)
    after = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert (after["project"]["name"], after["project"]["license"]) == (CUDA.name, CUDA.licence)
    assert after["project"] | {"name": PLAIN.name, "license": PLAIN.licence} == before["project"]
    assert {**after, "project": None} == {**before, "project": None}


def test_pkg_3_the_sums_can_be_checked(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"one")
    (tmp_path / "two.tar.gz").write_bytes(b"two")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "two.tar.gz").write_bytes(b"too")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_pkg_3_the_next_commands_are_printed(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"one")
    archives = [tmp_path / image_name("1.2.3", processor) for processor in ("amd64", "arm64")]
    not_tried = [Path("imp_service-1.2.3-cp39.whl")]
    text = how_to_publish(Checkout(ROOT, "a" * 40, "1.2.3"), tmp_path, archives, not_tried)
    assert "Nothing was published." in text and f"git tag -a v1.2.3 {'a' * 40}" in text
    assert "one.whl" in text and "Not tried" in text and "imp_service-1.2.3-cp39.whl" in text
    # No image is uploaded as a source distribution.
    assert f"twine upload {tmp_path}/*.whl {tmp_path}/imp_service-1.2.3.tar.gz\n" in text
    assert [line.split(":")[-1] for line in text.splitlines() if "manifest add" in line] == [str(a) for a in archives]
    assert "podman" not in how_to_publish(Checkout(ROOT, "a" * 40, "1.2.3"), tmp_path, [], [])


def test_pkg_1_this_version_is_read_where_it_is_stated() -> None:
    assert read_version() == __version__
    entries = changelog()
    assert next(iter(entries)) == __version__ and all(entries.values())
