"""Reads Kubernetes manifests, validates them with the strict schemas of every supported version, and runs Kustomize."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from packaging.version import Version

from support.deploy.inference_pool import INFERENCE_POOL
from support.deploy.pods import Document, stream_documents
from support.run.patience import HANGS_AFTER

# kubernetes_validate reads megabytes of JSON schemas for each document without this cache.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
kubernetes_validate.utils.all_versions = functools.cache(kubernetes_validate.utils.all_versions)

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "conf" / "kubernetes"
BASES = ("sidecar", "standalone")
OVERLAYS = ("overlays/inference_pool", "overlays/model_image", "overlays/survive", "overlays/tls")
# Supported versions, from the first one in which native sidecars are on by default.
VERSIONS = [v for v in kubernetes_validate.utils.all_versions() if Version(v) >= Version("1.29")]

# Custom resources: a cluster has these kinds once their definitions are installed.
CUSTOM = {"InferencePool": INFERENCE_POOL}


def base_files(base: str) -> list[str]:
    """Returns the names of the documents' files, in their order."""
    names: list[str] = yaml.safe_load((KUBERNETES / base / "kustomization.yaml").read_text())["resources"]
    return names


def base_documents(base: str) -> list[Document]:
    """Returns the documents of one base as they are in the repository."""
    folder = KUBERNETES / base
    return [document for file in base_files(base) for document in stream_documents((folder / file).read_text())]


def require_kubectl() -> None:
    """Skips without `kubectl`, or with one whose Kustomize cannot read patches with a target."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed here")
    version = _kubectl_version()
    if Version(version) < Version("1.21"):
        pytest.skip(f"kubectl {version} has Kustomize 2")


@functools.cache
def _kubectl_version() -> str:
    told = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=True,
    )
    client = json.loads(told.stdout)["clientVersion"]
    return f"{client['major']}.{client['minor'].rstrip('+')}"


def kustomized(folder: str | Path) -> list[Document]:
    """Returns the output of `kubectl kustomize` for a base, an overlay or another folder; needs no cluster."""
    require_kubectl()
    made = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / folder)],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return stream_documents(made.stdout)


def refusals(documents: list[Document], since: str = "1.29") -> list[str]:
    """Returns the errors of the strict schemas of all supported versions, or of those from `since` on."""
    found = []
    for version in (version for version in VERSIONS if Version(version) >= Version(since)):
        for document in documents:
            try:
                if document["kind"] in CUSTOM:
                    jsonschema.validate(document, CUSTOM[document["kind"]])
                else:
                    kubernetes_validate.validate(document, version, strict=True)
            except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
                found.append(f"{version} {document['kind']}: {error.message}")
    return found
