"""What `python tests/image` starts and finds: limits of the manifests, pip's settings, and images that are wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from image import pod
from image.image import RELEASES, config_problems, python_of
from image.pip_settings import places, write_settings
from image.pod import Confinement, bundle, memory_bytes, read_pod, seccomp
from imp_service.cli.shell import main
from imp_service.config import read_settings
from release.checkout import Checkout
from release.image_build import CONTAINERFILE

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "a" * 40
IMAGE: dict[str, Any] = {
    "User": "65532:65532",
    "Entrypoint": ["imp"],
    "Cmd": ["serve", "--listen", "0.0.0.0:50051", "--http", "0.0.0.0:8000"],
    "ExposedPorts": {"50051/tcp": {}, "8000/tcp": {}},
    "StopSignal": "SIGTERM",
    "WorkingDir": "/",
    "Env": ["PATH=/opt/imp/bin:/usr/bin", "PYTHONUNBUFFERED=1"],
    "Healthcheck": {"Test": ["CMD", "imp", "call", "health"], "StartPeriod": 900_000_000_000},
    "Labels": {
        "org.opencontainers.image.title": "imp",
        "org.opencontainers.image.version": "1.2.3",
        "org.opencontainers.image.revision": COMMIT,
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
}
PROFILE = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}, "excludes": {}},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
        {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_BPF"]}},
        {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64"]}},
    ],
}


@pytest.fixture
def manifests(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The output of `imp k8s` with these words."""

    def write(*words: str) -> str:
        main(["k8s", *words])
        return capsys.readouterr().out

    return write


def test_pkg_6_the_limits_are_those_of_the_manifests(manifests: Callable[..., str], tmp_path: Path) -> None:
    text = manifests("--set", "device.threads=2", "--set", "kv.bytes=64MiB")
    pod = read_pod(text)
    assert pod.arguments == ["serve", "--config", "/etc/imp/imp.conf"]
    assert f"limits: {{cpu: '3', memory: {(pod.confinement.memory_bytes or 0) >> 20}Mi}}" in text
    assert pod.confinement == Confinement((65532, 65532), True, False, pod.confinement.memory_bytes, 3.0)
    assert pod.ports == {"grpc": 50051, "health": 50052, "metrics": 9090}
    assert pod.health_services == {"readiness": "imp.v1.InferenceService", "liveness": "liveness"}
    (tmp_path / "imp.conf").write_text(pod.files["/etc/imp"]["imp.conf"])
    drain = read_settings(str(tmp_path / "imp.conf"), variables={}).settings.drain
    assert pod.grace_seconds > (drain.delay + drain.grace).total_seconds()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("drop: [ALL]", "drop: [NET_RAW]"),
        ("type: RuntimeDefault", "type: Unconfined"),
        ("configMap: {name: imp-conf-", "configMap: {name: other-"),
        ("memory: ", "memory: 1e"),
    ],
)
def test_pkg_6_a_pod_that_the_check_cannot_run_is_refused(manifests: Callable[..., str], old: str, new: str) -> None:
    text = manifests()
    assert old in text
    with pytest.raises(ValueError, match="expected"):
        read_pod(text.replace(old, new))


def test_pkg_6_the_bundle_confines_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile is that of Debian's package, which only the check of the image needs."""
    profile = tmp_path / "seccomp.json"
    profile.write_text(json.dumps(PROFILE))
    monkeypatch.setattr(pod, "SECCOMP", profile)
    tight = Confinement((65532, 65533), True, False, 1 << 29, 1.5)
    made = bundle(IMAGE, Path("/root"), ["serve"], tight, {"/etc/imp": Path("/volume")})
    process, linux = made["process"], made["linux"]
    assert process["args"] == ["imp", "serve"] and process["env"] == IMAGE["Env"]
    assert process["user"] == {"uid": 65532, "gid": 65533} and process["noNewPrivileges"]
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert made["root"] == {"path": "/root", "readonly": True}
    assert linux["resources"]["memory"] == {"limit": 1 << 29, "swap": 1 << 29}
    assert linux["resources"]["cpu"] == {"quota": 150_000, "period": 100_000}
    assert {"type": "network"} in linux["namespaces"] and {"type": "pid"} in linux["namespaces"]
    assert [mount["options"] for mount in made["mounts"] if mount["type"] == "bind"] == [["rbind", "ro"]]
    loose = bundle(IMAGE, Path("/root"), [], Confinement((0, 0), False, True), {})
    assert loose["linux"]["resources"] == {} and not loose["root"]["readonly"]
    assert not loose["process"]["noNewPrivileges"]


def test_pkg_6_the_filter_is_that_of_a_container_without_capabilities() -> None:
    here = seccomp(PROFILE, "x86_64")
    assert (here["defaultAction"], here["architectures"]) == ("SCMP_ACT_ERRNO", ["SCMP_ARCH_X86_64"])
    assert [(rule["names"], rule["action"]) for rule in here["syscalls"]] == [
        (["read"], "SCMP_ACT_ALLOW"),
        (["bpf"], "SCMP_ACT_ERRNO"),
        (["arch_prctl"], "SCMP_ACT_ALLOW"),
    ]
    assert here["syscalls"][1]["errnoRet"] == 1
    assert [rule["names"] for rule in seccomp(PROFILE, "aarch64")["syscalls"]] == [["read"], ["bpf"]]


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("3Ki", 3072), ("560Mi", 560 << 20), ("8Gi", 8 << 30)])
def test_pkg_6_quantities_are_bytes(text: str, expected: int) -> None:
    assert memory_bytes(text) == expected


def test_pkg_6_a_good_image_has_no_problems() -> None:
    assert config_problems(IMAGE, Checkout(ROOT, COMMIT, "1.2.3")) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("User",), "root", "User: 'root', expected '65532:65532'"),
        (("Entrypoint",), None, "Entrypoint: None, expected ['imp']"),
        (("Cmd",), ["serve"], "Cmd: ['serve'], expected"),
        (("ExposedPorts",), {"8000/tcp": {}}, "ExposedPorts: "),
        (("StopSignal",), "SIGKILL", "StopSignal: 'SIGKILL'"),
        (("Healthcheck",), None, "Healthcheck: {}, expected"),
        (("Healthcheck", "StartPeriod"), 0, "Healthcheck: "),
        (("Labels", "org.opencontainers.image.revision"), "b" * 40, "label revision: "),
        (("Labels", "org.opencontainers.image.version"), "1.2.2", "label version: '1.2.2', expected '1.2.3'"),
        (("Env",), ["PATH=/usr/bin:/opt/imp/bin"], "PATH: /usr/bin:/opt/imp/bin, expected"),
    ],
)
def test_pkg_6_a_wrong_image_is_found(path: tuple[str, ...], value: object, problem: str) -> None:
    image = copy.deepcopy(IMAGE)
    place = image
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (found,) = config_problems(image, Checkout(ROOT, COMMIT, "1.2.3"))
    assert found.startswith(problem)


def test_pkg_6_pip_in_the_build_has_the_settings_of_this_machine(tmp_path: Path) -> None:
    index, wheels = tmp_path / "index" / "simple", tmp_path / "my%wheels"
    index.mkdir(parents=True)
    wheels.mkdir()
    listed = [
        ":env:.timeout='30'",
        f"global.extra-index-url={f'file://{index}'!r}",
        "global.timeout='9'",
        "global.cache-dir='/nowhere'",
        f"install.find-links={f'{wheels}{chr(10)}/not/here'!r}",
    ]
    settings = write_settings("\n".join(listed))
    assert settings == (
        f"[global]\nextra-index-url = file://{index}\ntimeout = 30\n[install]\nfind-links = {wheels} /not/here\n"
    )
    assert places(settings) == sorted([index.parent, wheels])


def test_pkg_6_the_base_has_the_python_of_the_container_file() -> None:
    assert python_of("ARG PYTHON=3.14\nFROM a\n") == "3.14"
    assert python_of((ROOT / CONTAINERFILE).read_text()) in RELEASES
