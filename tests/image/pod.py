"""What a container is allowed: read from the manifests of `imp k8s`, and written as the bundle that runc starts."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.deploy.pods import imp_of, of_kind, pod_of, stream_documents

# The default filter of containers, which Debian's buildah and podman bring; RuntimeDefault is close to it.
SECCOMP = Path("/usr/share/containers/seccomp.json")
ARCHITECTURES = {"x86_64": ("amd64", "SCMP_ARCH_X86_64"), "aarch64": ("arm64", "SCMP_ARCH_AARCH64")}
CPU_PERIOD = 100_000  # microseconds
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

Json = dict[str, Any]


@dataclass(frozen=True)
class Confinement:
    """The rights and limits of a container. None: no limit."""

    user: tuple[int, int]
    is_root_read_only: bool
    may_gain_rights: bool
    memory_bytes: int | None = None
    cpus: float | None = None


@dataclass(frozen=True)
class Pod:
    """What a pod of `imp k8s` starts, and how."""

    arguments: Sequence[str]
    confinement: Confinement
    ports: Mapping[str, int]
    health_services: Mapping[str, str]  # name of the probe -> service that it asks for
    grace_seconds: float
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # folder -> name -> text


def read_pod(manifests: str) -> Pod:
    """Reads the Deployment and the ConfigMap. Raises KeyError or ValueError for a pod that this cannot run."""
    documents = stream_documents(manifests)
    pod, imp = pod_of(documents), imp_of(documents)
    security = {**pod["securityContext"], **imp["securityContext"]}
    if security["capabilities"] != {"drop": ["ALL"]} or security["seccompProfile"] != {"type": "RuntimeDefault"}:
        raise ValueError(f"{security}: expected no capabilities and the profile RuntimeDefault")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    config = of_kind(documents, "ConfigMap")
    files = {}
    for mount in imp["volumeMounts"]:
        if volumes[mount["name"]].get("configMap") != {"name": config["metadata"]["name"]}:
            raise ValueError(f"{volumes[mount['name']]}: expected no volume but the ConfigMap")
        files[mount["mountPath"]] = config["data"]
    limits = imp["resources"]["limits"]
    return Pod(
        arguments=imp["args"],
        confinement=Confinement(
            user=(security["runAsUser"], security["runAsGroup"]),
            is_root_read_only=security["readOnlyRootFilesystem"],
            may_gain_rights=security["allowPrivilegeEscalation"],
            memory_bytes=memory_bytes(limits["memory"]),
            cpus=float(limits["cpu"]),
        ),
        ports={port["name"]: port["containerPort"] for port in imp["ports"]},
        health_services={name: imp[f"{name}Probe"]["grpc"]["service"] for name in ("readiness", "liveness")},
        grace_seconds=pod["terminationGracePeriodSeconds"],
        files=files,
    )


def memory_bytes(quantity: str) -> int:
    """Returns the bytes of a quantity of Kubernetes, such as 560Mi."""
    found = re.fullmatch(r"(\d+)(\D*)", quantity)
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{quantity}: expected a number of bytes, Ki, Mi or Gi")
    return int(found[1]) * UNITS[found[2]]


def bundle(
    image: Json, root: Path, arguments: Sequence[str], confinement: Confinement, binds: Mapping[str, Path]
) -> Json:
    """Returns config.json of a bundle: the image's entry point with these arguments. `binds` are read-only folders."""
    user, group = confinement.user
    resources: Json = {}
    if confinement.memory_bytes is not None:
        resources["memory"] = {"limit": confinement.memory_bytes, "swap": confinement.memory_bytes}
    if confinement.cpus is not None:
        resources["cpu"] = {"quota": int(confinement.cpus * CPU_PERIOD), "period": CPU_PERIOD}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": [*(image.get("Entrypoint") or []), *arguments],
            "env": image["Env"],
            "cwd": image.get("WorkingDir") or "/",
            "noNewPrivileges": not confinement.may_gain_rights,
            "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
        },
        "root": {"path": str(root), "readonly": confinement.is_root_read_only},
        "hostname": "imp",
        "mounts": [*MOUNTS, *(_bind(target, source) for target, source in binds.items())],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "resources": resources,
            "seccomp": seccomp(json.loads(SECCOMP.read_text())),
        },
    }


def _mount(target: str, kind: str, *options: str) -> Json:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _bind(target: str, source: Path) -> Json:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}


# Those of every container; /dev/shm as small as Kubernetes makes it.
MOUNTS = (
    _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
    _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
    _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
    _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
    _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
    _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
    _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
)


def seccomp(profile: Json, machine: str = platform.machine()) -> Json:
    """Returns the filter of a profile for a container without capabilities on this processor."""
    architecture, name = ARCHITECTURES[machine]
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if includes.get("caps") or architecture not in includes.get("arches", [architecture]):
            continue
        if architecture in excludes.get("arches", []):
            continue
        kept = {key: rule[key] for key in ("names", "action", "args") if rule.get(key)}
        rules.append(kept | ({"errnoRet": rule["errnoRet"]} if rule.get("errnoRet") is not None else {}))
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [name],
        "syscalls": rules,
    }
