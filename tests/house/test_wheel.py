"""The results of tools/release.py: the wheels' content and tags, and that they serve without compiler and network.

IMP_RELEASED=FOLDER names its output folder and enables these tests.
"""

from __future__ import annotations

import email.parser
import hashlib
import json
import os
import re
import signal
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from imp_service import __version__
from imp_service.pb import inference_pb2_grpc
from release.build import Tools, build_sdist
from release.checkout import changelog, read_checkout
from release.distributions import CUDA, DISTRIBUTIONS, PLAIN, Distribution
from support.deploy.offered_commands import commands, ran, words_of
from support.machine.confined import confined
from support.run.patience import HANGS_AFTER
from support.servers.served import ask, tokens_of
from support.servers.served_models import built_in

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "imp_service"
# Made by the build inside the package.
BUILT = {"kubernetes": ROOT / "conf" / "kubernetes", "proto": ROOT / "proto", "systemd": ROOT / "conf" / "systemd"}
RELEASED = Path(os.environ.get("IMP_RELEASED", "")).resolve()
GLIBC = re.compile(r"@+GLIBC_(\d+)\.(\d+)")

pytestmark = pytest.mark.skipif("IMP_RELEASED" not in os.environ, reason="IMP_RELEASED names no folder of a release")


@pytest.fixture(scope="module")
def tools() -> Tools:
    return Tools(RELEASED / "tools")


@pytest.fixture(scope="module", params=DISTRIBUTIONS, ids=lambda distribution: distribution.name)
def distribution(request: pytest.FixtureRequest) -> Distribution:
    found: Distribution = request.param
    if found is CUDA and not (RELEASED / "raw" / found.name).exists():
        pytest.skip("no CUDA toolkit: the release has no wheel with CUDA code")
    return found


@pytest.fixture(scope="module")
def path(distribution: Distribution) -> Path:
    (found,) = (RELEASED / "dist").glob(f"{distribution.file_name}-*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(path) as archive:
        yield archive


def sources() -> set[str]:
    """Returns the package's own files."""
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    made = {"__pycache__", *BUILT}
    return {f"imp_service/{path}" for path in files if not made & set(path.parts) and path.suffix != ".so"}


def metadata(wheel: zipfile.ZipFile) -> Any:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def newest_glibc(library: Path) -> tuple[int, int]:
    """Returns the newest version of glibc whose symbols a library needs."""
    listed = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    return max((int(major), int(minor)) for major, minor in GLIBC.findall(listed))


def test_lif_11_b09_it_holds_the_package_and_no_test_hook(wheel: zipfile.ZipFile):
    names = [name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith("/")]
    extensions = [name for name in names if name.endswith(".so")]
    assert [Path(name).name.split(".")[0] for name in extensions] == ["_core"]
    bases = {
        p.relative_to(BUILT["kubernetes"])
        for base in ("sidecar", "standalone")
        for p in (BUILT["kubernetes"] / base).iterdir()
    }
    protos = {p.relative_to(BUILT["proto"]) for p in BUILT["proto"].rglob("*.proto")}
    built = {f"imp_service/kubernetes/{path}" for path in bases} | {f"imp_service/proto/{path}" for path in protos}
    built |= {"imp_service/systemd/imp.service", "imp_service/revision.txt"}
    assert set(names) - set(extensions) == sources() | built
    assert [name for name in names if b"IMP_FAULT" in wheel.read(name)] == []
    assert not any(b"emulated GPU" in wheel.read(name) for name in extensions)


def test_pkg_1_the_wheel_says_what_it_is(wheel: zipfile.ZipFile, distribution: Distribution):
    said = metadata(wheel)
    assert (said["Name"], said["Version"]) == (distribution.name, __version__)
    assert (said["License-Expression"], said["Author"]) == (distribution.licence, "The imp authors")
    assert "Typing :: Typed" in said.get_all("Classifier") and said["Keywords"]
    assert said["Description-Content-Type"] == "text/markdown"


def test_lif_11_pkg_2_cuda_code_is_in_one_distribution_alone(wheel: zipfile.ZipFile, distribution: Distribution):
    (extension,) = [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]
    assert (b".nv_fatbin" in extension) == (distribution is CUDA)


def test_pkg_2_the_tag_is_the_one_that_auditwheel_gives(path: Path, tools: Tools, tmp_path: Path):
    found = re.search(r"-manylinux_(\d+)_(\d+)_(\w+)\.whl$", path.name)
    assert found is not None  # narrows
    said = " ".join(tools.run(["auditwheel", "show", str(path)]).split())
    assert f'consistent with the following platform tag: "manylinux_{found[1]}_{found[2]}_{found[3]}"' in said
    with zipfile.ZipFile(path) as archive:
        libraries = [Path(archive.extract(n, tmp_path)) for n in archive.namelist() if n.endswith(".so")]
    # Independent of auditwheel's tables: no library needs symbols of a newer glibc than the tag says.
    assert libraries and all(newest_glibc(library) <= (int(found[1]), int(found[2])) for library in libraries)


def test_pkg_2_it_serves_confined_as_a_pod(distribution: Distribution, tmp_path: Path):
    """Serves from the release's trial environment, without a compiler and without a network."""
    canary = built_in().canary
    assert canary is not None  # narrows
    python = str(RELEASED / "trial" / distribution.name / "bin" / "python")
    config = [python, "-I", "-m", "imp_service", "config", "check", "--set", "device.kind=cuda_emulated"]
    assert (
        b"--set device.kind: " in subprocess.run(config, check=False, capture_output=True, timeout=HANGS_AFTER).stderr
    )
    words = ["serve", "--listen", f"unix://{tmp_path}/imp.sock", "--set", "device.threads=1"]
    # -I: only installed packages, whatever PYTHONPATH says.
    process = subprocess.Popen([*confined(tmp_path), python, "-I", "-m", "imp_service", *words])
    try:
        with grpc.insecure_channel(f"unix://{tmp_path}/imp.sock") as channel:
            # The server accepts connections before its model is loaded, and refuses calls until then.
            watched = HealthStub(channel).Watch(HealthCheckRequest(), wait_for_ready=True, timeout=HANGS_AFTER)
            assert any(answer.status == HealthCheckResponse.SERVING for answer in watched)
            generate = inference_pb2_grpc.InferenceServiceStub(channel).Generate
            messages = list(generate(ask(list(canary.prompt_ids), 12), timeout=HANGS_AFTER))
        assert tokens_of(messages) == list(canary.output_ids[:12])
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER) == 0
    finally:
        process.kill()
        process.wait()


def test_pkg_5_the_commands_of_a_checkout_start(distribution: Distribution, tmp_path: Path):
    python = RELEASED / "trial" / distribution.name / "bin" / "python"
    found = {name: ran(python, *words_of(name), "--help", home=tmp_path) for name in commands()}
    failed = {name: each.stderr for name, each in found.items() if each.returncode or not each.stdout}
    assert len(found) > 15 and failed == {}


def test_b07_everything_that_it_needs_was_installed_from_wheels(distribution: Distribution):
    python = str(RELEASED / "trial" / distribution.name / "bin" / "python")
    listed = subprocess.run([python, "-I", "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    installed = {each["name"].lower() for each in json.loads(listed.stdout)} - {"pip", "setuptools", distribution.name}
    wheels = {path.name.split("-")[0].lower().replace("_", "-") for path in (RELEASED / "wheelhouse").glob("*.whl")}
    assert {name.replace("_", "-") for name in installed} <= wheels and "grpcio" in installed


def test_pkg_3_two_builds_of_one_commit_give_one_source_distribution(tools: Tools, tmp_path: Path):
    """The second build uses another folder and other permissions of new files."""
    (released,) = (RELEASED / "dist").glob("*.tar.gz")
    (tmp_path / "dist").mkdir()
    before = os.umask(0o077)
    try:
        again = build_sdist(tools, read_checkout(), tmp_path / "dist", tmp_path / "work")
    finally:
        os.umask(before)
    assert again.name == released.name
    assert again.read_bytes() == released.read_bytes()


def test_pkg_3_the_sums_are_those_of_every_file():
    lines = (RELEASED / "dist" / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.name: path for path in (RELEASED / "dist").iterdir() if path.name != "SHA256SUMS"}
    assert listed == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def test_pkg_3_b13_every_wheel_has_its_bill_of_materials(distribution: Distribution):
    bill = json.loads((RELEASED / "dist" / f"{distribution.file_name}-{__version__}.cdx.json").read_text())
    told = bill["metadata"]["component"]
    assert (told["name"], told["version"]) == (distribution.name, __version__)
    assert ("cudart" in {each["name"] for each in bill["components"]}) == (distribution is CUDA)
    committed = json.loads((ROOT / "bill_of_materials.cdx.json").read_text())
    if distribution is PLAIN:
        assert bill == committed


def test_pkg_3_cnt_2_the_wheel_of_the_client_is_there_with_its_bill():
    client = f"imp_client-{__version__}"
    assert {path.name for path in (RELEASED / "dist").glob("imp_client*")} == {
        f"{client}-py3-none-any.whl",
        f"{client}.cdx.json",
    }
    bill = json.loads((RELEASED / "dist" / f"{client}.cdx.json").read_text())
    with zipfile.ZipFile(RELEASED / "dist" / f"{client}-py3-none-any.whl") as wheel:
        needed = {re.split(r"[<>=]", line)[0] for line in metadata(wheel).get_all("Requires-Dist")}
    assert {each["name"] for each in bill["components"]} == needed
    assert bill["metadata"]["component"]["name"] == "imp-client"


def test_pkg_3_the_notes_are_the_changes_of_this_version():
    assert (RELEASED / "notes.md").read_text().strip() == changelog()[__version__]


def test_pkg_2_cibuildwheel_builds_for_every_python_and_processor(tools: Tools):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    minors = [line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix + "1")]
    printed = tools.run(["cibuildwheel", "--print-build-identifiers", "--platform", "linux", str(ROOT)])
    expected = {f"cp3{minor}-manylinux_{processor}" for minor in minors for processor in ("x86_64", "aarch64")}
    assert set(printed.split()) == expected
