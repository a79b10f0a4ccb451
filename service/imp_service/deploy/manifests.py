"""Fills a base in: names, images, resources, replicas, the model's volume and the ConfigMap."""

import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imp_service.deploy.bases import Base, Document, containers_of, pod_of
from imp_service.deploy.resources import Resources, memory_quantity

INSTANCE_LABEL = "app.kubernetes.io/instance"
PLACEHOLDER = "registry.example/"


@dataclass(frozen=True, slots=True)
class Filling:
    """What a base is filled in with. None leaves what the base says."""

    conf: str  # the text of imp.conf
    resources: Resources
    termination_seconds: int
    model_volume: Mapping[str, object] | None  # the source of the volume; None: no volume, the model is in the package
    name: str | None = None
    image: str | None = None
    app_image: str | None = None
    replicas: tuple[int, int] | None = None  # least and most; equal: a fixed number, and no autoscaler


def fill(base: Base, filling: Filling) -> list[Document]:
    """The documents of the stream, the ConfigMap first."""
    documents = copy.deepcopy(base.documents)
    name = filling.name or base.name
    for document in documents:
        _rename(document, name)
    pod = pod_of(documents)
    pod["terminationGracePeriodSeconds"] = filling.termination_seconds
    for container in containers_of(pod):
        image = filling.image if container["name"] == "imp" else filling.app_image
        if image is not None:
            container["image"] = image
        if container["name"] == "imp":
            container["resources"] = _resources(filling.resources)
    _set_model_volume(pod, filling.model_volume)
    conf_map = _conf_map(name, filling.conf)
    _volume(pod, "imp-conf")["configMap"] = {"name": conf_map["metadata"]["name"]}
    if filling.replicas is not None:
        documents = _with_replicas(documents, *filling.replicas)
    return [conf_map, *documents]


def placeholders(documents: list[Document]) -> list[str]:
    """Images that nobody has named yet."""
    pod = pod_of(documents)
    images = [container["image"] for container in containers_of(pod)]
    images += [volume["image"]["reference"] for volume in pod["volumes"] if "image" in volume]
    return [image for image in images if image.startswith(PLACEHOLDER)]


def _rename(document: Document, name: str) -> None:
    document["metadata"]["name"] = name
    for labels in _labels(document):
        labels[INSTANCE_LABEL] = name
    if document["kind"] == "HorizontalPodAutoscaler":
        document["spec"]["scaleTargetRef"]["name"] = name


def _labels(node: object) -> Iterator[dict[str, Any]]:
    """Every mapping that names the instance: labels and selectors, wherever they stand."""
    if isinstance(node, dict):
        if INSTANCE_LABEL in node:
            yield node
        for below in node.values():
            yield from _labels(below)
    elif isinstance(node, list):
        for below in node:
            yield from _labels(below)


def _volume(pod: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(volume for volume in pod["volumes"] if volume["name"] == name)
    return found


def _set_model_volume(pod: dict[str, Any], source: Mapping[str, object] | None) -> None:
    kept = [volume for volume in pod["volumes"] if volume["name"] != "model"]
    if source is not None:
        pod["volumes"] = [*kept, {"name": "model", **source}]
        return
    pod["volumes"] = kept
    for container in containers_of(pod):
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "model"]


def _resources(resources: Resources) -> dict[str, dict[str, str]]:
    amounts = {"cpu": str(resources.cpus), "memory": memory_quantity(resources.memory_bytes)}
    return {"requests": amounts, "limits": dict(amounts)}


def _conf_map(name: str, conf: str) -> Document:
    # Named after its content, as Kustomize does: pods restart when it changes, and roll back with the one they had.
    digest = hashlib.sha256(conf.encode()).hexdigest()[:10]
    metadata = {"name": f"{name}-conf-{digest}", "labels": {INSTANCE_LABEL: name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"imp.conf": conf}}


def _with_replicas(documents: list[Document], least: int, most: int) -> list[Document]:
    kept = []
    for document in documents:
        if document["kind"] == "HorizontalPodAutoscaler":
            if least == most:
                continue
            document["spec"] |= {"minReplicas": least, "maxReplicas": most}
        elif document["kind"] == "Deployment" and least == most:
            document["spec"].pop("replicas", None)
            document["spec"] = {"replicas": least, **document["spec"]}
        kept.append(document)
    return kept
