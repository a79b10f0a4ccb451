"""The wheel as it is released: what is in it, and that it serves from a wheelhouse alone, without a network.

`pip wheel --wheel-dir FOLDER .` makes it with all that it needs; IMP_WHEELHOUSE=FOLDER asks for these tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import grpc
import pytest

from imp_service.pb import inference_pb2_grpc
from support.confined import confined
from support.patience import HANGS_AFTER
from support.served import ask, tokens_of
from support.served_models import built_in

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "imp_service"
# Made by the build inside of the package.
BUILT = {"kubernetes": ROOT / "conf" / "kubernetes", "proto": ROOT / "proto", "systemd": ROOT / "conf" / "systemd"}

pytestmark = pytest.mark.skipif("IMP_WHEELHOUSE" not in os.environ, reason="IMP_WHEELHOUSE names no folder of wheels")


@pytest.fixture(scope="module")
def wheel() -> zipfile.ZipFile:
    (path,) = Path(os.environ["IMP_WHEELHOUSE"]).glob("imp_service-*.whl")
    return zipfile.ZipFile(path)


def sources() -> set[str]:
    """The package's own files."""
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    made = {"__pycache__", *BUILT}
    return {f"imp_service/{path}" for path in files if not made & set(path.parts) and path.suffix != ".so"}


def test_lif_11_b09_it_holds_the_package_and_no_test_hook(wheel: zipfile.ZipFile):
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    extensions = [name for name in names if name.endswith(".so")]
    assert [Path(name).name.split(".")[0] for name in extensions] == ["_core"]
    bases = {
        p.relative_to(BUILT["kubernetes"])
        for base in ("sidecar", "standalone")
        for p in (BUILT["kubernetes"] / base).iterdir()
    }
    protos = {p.relative_to(BUILT["proto"]) for p in BUILT["proto"].rglob("*.proto")}
    built = {f"imp_service/kubernetes/{path}" for path in bases} | {f"imp_service/proto/{path}" for path in protos}
    built |= {"imp_service/systemd/imp.service"}
    # Written where the source is a checkout.
    revision = {"imp_service/revision.txt"}
    assert set(names) - set(extensions) - revision == (sources() | built) - revision
    assert [name for name in names if b"IMP_FAULT" in wheel.read(name)] == []
    assert not any(b"emulated GPU" in wheel.read(name) for name in extensions)


def test_lif_11_b07_it_is_installed_and_serves_without_a_network(wheel: zipfile.ZipFile, tmp_path: Path):
    """In an environment of its own; the second half as a pod would confine it."""
    canary = built_in().canary
    assert canary is not None  # narrows
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    python = str(tmp_path / "venv" / "bin" / "python")
    wheels = str(Path(os.environ["IMP_WHEELHOUSE"]).resolve())
    offline = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheels, "imp-service"]
    subprocess.run([python, *offline], check=True, timeout=300)
    config = [python, "-I", "-m", "imp_service", "config", "check", "--set", "device.kind=cuda_emulated"]
    assert b"--set device.kind: " in subprocess.run(config, check=False, capture_output=True, timeout=300).stderr
    words = ["serve", "--listen", f"unix://{tmp_path}/imp.sock", "--set", "device.threads=1"]
    # -I: nothing but what is installed, whatever PYTHONPATH says.
    process = subprocess.Popen([*confined(tmp_path), python, "-I", "-m", "imp_service", *words])
    try:
        with grpc.insecure_channel(f"unix://{tmp_path}/imp.sock") as channel:
            generate = inference_pb2_grpc.InferenceServiceStub(channel).Generate
            request = ask(list(canary.prompt_ids), 12)
            messages = list(generate(request, wait_for_ready=True, timeout=HANGS_AFTER))
        assert tokens_of(messages) == list(canary.output_ids[:12])
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER) == 0
    finally:
        process.kill()
        process.wait()
