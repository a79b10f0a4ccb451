"""What tests of manifests share: the bases as data, the strict schemas of every supported Kubernetes, and Kustomize."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "conf" / "kubernetes"
BASES = ("sidecar", "standalone")
OVERLAYS = ("overlays/claim", "overlays/tls")
# From the first version in which native sidecars are stable.
VERSIONS = [v for v in kubernetes_validate.utils.all_versions() if Version(v) >= Version("1.33")]

Document = dict[str, Any]


def stream_documents(text: str) -> list[Document]:
    """Every document of a YAML stream."""
    return list(yaml.safe_load_all(io.StringIO(text)))


def base_documents(base: str) -> list[Document]:
    """The documents of one base, as they stand in the repository."""
    folder = KUBERNETES / base
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [document for file in files for document in stream_documents((folder / file).read_text())]


def kustomized(folder: str) -> list[Document]:
    """What `kubectl kustomize` makes of a base or an overlay; it needs no cluster."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed here")
    made = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert made.returncode == 0, made.stderr
    return stream_documents(made.stdout)


def refusals(documents: list[Document]) -> list[str]:
    """What the strict schemas of any supported version say against the documents."""
    found = []
    for version in VERSIONS:
        for document in documents:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{version} {document['kind']}: {error.message}")
    return found


def of_kind(documents: list[Document], kind: str) -> Document:
    """The one document of this kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def pod_of(documents: list[Document]) -> dict[str, Any]:
    return of_kind(documents, "Deployment")["spec"]["template"]["spec"]


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def imp_of(documents: list[Document]) -> dict[str, Any]:
    """imp's container, sidecar or not."""
    (found,) = (container for container in containers_of(pod_of(documents)) if container["name"] == "imp")
    return found


def ports_of(container: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}
