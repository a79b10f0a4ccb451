"""Finds what a pod is made of in Kubernetes manifests. Needs no package but imp's own."""

from __future__ import annotations

import io
from typing import Any

import yaml

Document = dict[str, Any]


def stream_documents(text: str) -> list[Document]:
    """Returns every document of a YAML stream."""
    return list(yaml.safe_load_all(io.StringIO(text)))


def of_kind(documents: list[Document], kind: str) -> Document:
    """Returns the one document of this kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def pod_of(documents: list[Document]) -> dict[str, Any]:
    return of_kind(documents, "Deployment")["spec"]["template"]["spec"]


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def imp_of(documents: list[Document]) -> dict[str, Any]:
    """Returns imp's container, which may be a sidecar."""
    (found,) = (container for container in containers_of(pod_of(documents)) if container["name"] == "imp")
    return found


def ports_of(container: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}
