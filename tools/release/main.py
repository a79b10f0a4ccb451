"""The steps of a release in order, except publishing."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from release import build, images, trial
from release.checkout import ROOT, Checkout, ReleaseError, changelog, read_checkout
from release.distributions import CUDA, DISTRIBUTIONS, PLAIN, Distribution


def main(words: Sequence[str] | None = None) -> int:
    """Makes and tests the files."""
    arguments = options().parse_args(words)
    wheels, archives = ([path.resolve() for path in paths] for paths in (arguments.wheel, arguments.image))
    try:
        release(arguments.out.resolve(), wheels, archives, arguments.without_cuda)
    except ReleaseError as error:
        print(f"tools/release.py: {error}", file=sys.stderr)
        return 1
    return 0


def options() -> argparse.ArgumentParser:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(prog="tools/release.py", description="Make and try the files of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release", help="a folder, which is emptied")
    parser.add_argument("--without-cuda", action="store_true", help=f"build no wheel of {CUDA.name}")
    for name, what in (("--wheel", "wheels"), ("--image", "images, each with its bill of materials next to it")):
        parser.add_argument(name, type=Path, nargs="+", action="extend", default=[], help=f"take these {what}")
    return parser


def release(out: Path, given: Sequence[Path], archives: Sequence[Path], without_cuda: bool) -> None:
    """Fills the output folder, or raises ReleaseError."""
    checkout = read_checkout()
    print(f"imp {checkout.version} of commit {checkout.commit}")
    given_of = {wheel: build.check_wheel(wheel, checkout) for wheel in given}
    wanted = [each for each in DISTRIBUTIONS if not (without_cuda and each is CUDA)]
    if CUDA in wanted and CUDA not in given_of.values() and shutil.which("nvcc") is None:
        raise ReleaseError(f"{CUDA.name} needs nvcc on the PATH, expected that or --without-cuda")
    shutil.rmtree(out, ignore_errors=True)
    dist, wheelhouse = out / "dist", out / "wheelhouse"
    dist.mkdir(parents=True)
    taken = [images.take_image(archive, checkout, dist) for archive in archives]
    (out / "notes.md").write_text(changelog(checkout.root)[checkout.version] + "\n")

    with step("install the tools"):
        tools = build.Tools.install(checkout, out / "tools")
    with step("build the source distribution"):
        sdist = build.build_sdist(tools, checkout, dist, out / "first")
        again = build.build_sdist(tools, checkout, out / "second", out / "second" / "work")
        if sdist.read_bytes() != again.read_bytes():
            raise ReleaseError(f"{sdist.name}: the build is not reproducible")
    wheels: list[tuple[Distribution, Path]] = []
    for distribution in wanted:
        source = build.unpack(sdist, distribution, out / "sources" / distribution.name)
        (dist / f"{distribution.file_name}-{checkout.version}.cdx.json").write_text(bill(tools, distribution, source))
        raw = [wheel for wheel, of in given_of.items() if of is distribution]
        if not raw:
            with step(f"build a wheel of {distribution.name}"):
                raw = [build.build_wheel(tools, distribution, source, out / "raw" / distribution.name)]
        for wheel in raw:
            build.check_wheel(wheel, checkout)
            wheels.append((distribution, build.repair(tools, wheel, dist)))
    with step("build the wheel of imp-client"):
        source = build.unpack(sdist, PLAIN, out / "sources" / "imp-client")
        client = build.build_client(tools, source, dist)
        client_bill = tools.run(["python", str(source / "tools" / "write_bill_of_materials.py"), "--client"])
        (dist / f"imp_client-{checkout.version}.cdx.json").write_text(client_bill)
    with step("check the descriptions"):
        tools.run(["twine", "check", "--strict", str(sdist), str(client), *(str(wheel) for _, wheel in wheels)])
    tried = [(distribution, wheel) for distribution, wheel in wheels if trial.fits_here(wheel)]
    with step("gather what imp needs"):
        for wheel in (client, *(wheel for _, wheel in tried)):
            trial.gather(tools, wheel, wheelhouse)
    with step(f"install {client.name}"):
        trial.try_client(client, wheelhouse, out / "trial" / "imp-client")
    for distribution, wheel in tried:
        with step(f"install {wheel.name} and serve"):
            print(trial.try_wheel(checkout, distribution, wheel, wheelhouse, out / "trial" / distribution.name), end="")
    write_sums(dist)
    print(how_to_publish(checkout, dist, taken, [wheel for _, wheel in wheels if not trial.fits_here(wheel)]))


def bill(tools: build.Tools, distribution: Distribution, source: Path) -> str:
    """Returns the bill of materials of a distribution."""
    option = "--with-cuda" if distribution is CUDA else "--print"
    return tools.run(["python", str(source / "tools" / "write_bill_of_materials.py"), option])


def write_sums(dist: Path) -> None:
    """Writes SHA256SUMS in the format of `sha256sum --check`."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(dist.iterdir())}
    (dist / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def how_to_publish(checkout: Checkout, dist: Path, taken: Sequence[Path], not_tried: Sequence[Path]) -> str:
    """Returns instructions for the person who publishes."""
    lines = ["", f"{dist} has:", *(f"  {path.name}" for path in sorted(dist.iterdir()))]
    if not_tried:
        lines += ["Not tried, because they are for another Python or processor:", *(f"  {p.name}" for p in not_tried)]
    return "\n".join(
        [
            *lines,
            "Nothing was published. To publish it:",
            f"  git tag -a v{checkout.version} {checkout.commit} && git push origin v{checkout.version}",
            f"  twine upload {dist}/*.whl {dist}/{PLAIN.file_name}-{checkout.version}.tar.gz",
            *(f"  {line}" for line in images.how_to_push(checkout.version, taken)),
            "  and SHA256SUMS, *.cdx.json and notes.md where the project announces releases.",
            "After the push of the tag, .github/workflows/release.yml makes such files and drafts a release of them.",
        ]
    )


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints the step when it begins, and its seconds when it ends."""
    began = time.monotonic()
    print(f"- {name}", flush=True)
    yield
    print(f"  {time.monotonic() - began:.0f} s", flush=True)
