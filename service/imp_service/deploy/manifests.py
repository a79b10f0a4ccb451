"""Fills in a base: names, images, resources, replicas, the volume of the model, egress and the ConfigMap."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from imp_service.deploy.bases import Base, Document, containers_of, workload
from imp_service.deploy.fetch import Fetch
from imp_service.deploy.resources import Resources, memory_quantity
from imp_service.deploy.template import Path, Template

INSTANCE_LABEL = "app.kubernetes.io/instance"
# The name of the port of OpenAI's API.
HTTP = "http"
PLACEHOLDER = "registry.example/"
POD: Path = ("spec", "template", "spec")
# progressDeadlineSeconds with a download, which may take long.
FETCH_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Filling:
    """The values to fill in. None keeps the value of the base."""

    conf: str  # the text of imp.conf
    resources: Resources
    termination_seconds: int
    model_volume: Mapping[str, object] | None  # the source of the volume; None: no volume, the model is in the package
    egress: Sequence[Mapping[str, object]] = ()  # rules of the NetworkPolicy
    fetch: Fetch | None = None  # the download of the model when a pod starts
    name: str | None = None
    image: str | None = None
    app_image: str | None = None
    http_port: int | None = None  # which other pods reach; None: no HTTP, or for the pod alone
    replicas: tuple[int, int] | None = None  # least and most; equal: a fixed number, and no autoscaler


def fill(base: Base, filling: Filling) -> list[str]:
    """The texts of the stream's documents with their comments, the ConfigMap's data first."""
    name = filling.name or base.name
    conf_map = _conf_map(name, filling.conf)
    filled = []
    for text in base.texts:
        template = Template(text)
        kind = template.data["kind"]
        if kind == "HorizontalPodAutoscaler" and _is_fixed(filling.replicas):
            continue
        _rename(template, name)
        if kind == "Deployment":
            _fill_pod(template, filling, conf_map["metadata"]["name"])
        elif kind == "HorizontalPodAutoscaler" and filling.replicas is not None:
            template.set(("spec", "minReplicas"), filling.replicas[0])
            template.set(("spec", "maxReplicas"), filling.replicas[1])
        elif kind == "Service" and filling.http_port is not None:
            port = {"name": HTTP, "port": filling.http_port, "targetPort": HTTP, "appProtocol": "http"}
            template.append(("spec", "ports"), port)
        elif kind == "NetworkPolicy":
            if filling.egress:
                template.set_items(("spec", "egress"), filling.egress)
            if filling.http_port is not None:
                clients = template.data["spec"]["ingress"][0]["ports"]
                template.set(("spec", "ingress", 0, "ports"), [*clients, {"port": HTTP, "protocol": "TCP"}])
        filled.append(template.text)
    return [_written(conf_map), *filled]


def placeholders(texts: Sequence[str]) -> dict[str, str]:
    """Images that are still placeholders, with the option of `imp k8s` that names another."""
    pod = workload([yaml.safe_load(text) for text in texts])["spec"]["template"]["spec"]
    return {
        container["image"]: "--image" if container["name"] == "imp" else "--app-image"
        for _, container in containers_of(pod)
        if container["image"].startswith(PLACEHOLDER)
    }


def _is_fixed(replicas: tuple[int, int] | None) -> bool:
    return replicas is not None and replicas[0] == replicas[1]


def _rename(template: Template, name: str) -> None:
    data = template.data
    template.set(("metadata", "name"), name)
    for path in _labels(data, ()):
        template.set(path, name)
    if data["kind"] == "HorizontalPodAutoscaler":
        template.set(("spec", "scaleTargetRef", "name"), name)


def _labels(node: object, path: Path) -> Iterator[Path]:
    """The paths of labels and selectors that name the instance."""
    inner: Iterator[tuple[Any, object]] = iter(())
    if isinstance(node, dict):
        inner = iter(node.items())
    elif isinstance(node, list):
        inner = enumerate(node)
    for step, below in inner:
        if step == INSTANCE_LABEL:
            yield (*path, step)
        else:
            yield from _labels(below, (*path, step))


def _fill_pod(template: Template, filling: Filling, conf_name: str) -> None:
    pod = template.data["spec"]["template"]["spec"]
    template.set((*POD, "terminationGracePeriodSeconds"), filling.termination_seconds)
    for place, container in containers_of(pod):
        is_imp = container["name"] == "imp"
        image = filling.image if is_imp else filling.app_image
        if image is not None:
            template.set((*POD, *place, "image"), image)
        if is_imp:
            _set_resources(template, (*POD, *place, "resources"), filling.resources)
            if filling.http_port is not None:
                port = {"name": HTTP, "containerPort": filling.http_port}
                template.append((*POD, *place, "ports"), port)
    volumes = [volume["name"] for volume in pod["volumes"]]
    template.set((*POD, "volumes", volumes.index("imp-conf"), "configMap", "name"), conf_name)
    _set_model_volume(template, pod, (*POD, "volumes", volumes.index("model")), filling.model_volume)
    if filling.replicas is not None and _is_fixed(filling.replicas):
        if "replicas" in template.data["spec"]:
            template.set(("spec", "replicas"), filling.replicas[0])
        else:
            template.insert(("spec", "selector"), f"replicas: {filling.replicas[0]}")
    if filling.fetch is not None:
        _insert_fetch(template, filling.fetch)


def _insert_fetch(template: Template, fetch: Fetch) -> None:
    """The init container, before all others; a pod has the time to download."""
    pod = template.data["spec"]["template"]["spec"]
    (imp,) = (container for _, container in containers_of(pod) if container["name"] == "imp")
    item = [fetch.container(imp)]
    if "initContainers" in pod:
        template.insert((*POD, "initContainers", 0), _block(item))
    else:
        template.insert((*POD, "containers"), _block({"initContainers": item}))
    template.set(("spec", "progressDeadlineSeconds"), FETCH_SECONDS)


def _set_resources(template: Template, path: Path, resources: Resources) -> None:
    for kind in ("requests", "limits"):
        template.set((*path, kind, "cpu"), str(resources.cpus))
        template.set((*path, kind, "memory"), memory_quantity(resources.memory_bytes))


def _set_model_volume(
    template: Template, pod: Mapping[str, Any], path: Path, source: Mapping[str, object] | None
) -> None:
    if source is not None:
        template.set(path, {"name": "model", **source})
        return
    template.remove_item(path)
    for place, container in containers_of(pod):
        mounts = [mount["name"] for mount in container["volumeMounts"]]
        if "model" in mounts:
            template.remove_item((*POD, *place, "volumeMounts", mounts.index("model")))


def _conf_map(name: str, conf: str) -> Document:
    # The name has a digest of the content, as in Kustomize: new content makes new pods, and a roll-back restores it.
    digest = hashlib.sha256(conf.encode()).hexdigest()[:10]
    metadata = {"name": f"{name}-conf-{digest}", "labels": {INSTANCE_LABEL: name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"imp.conf": conf}}


class _NoAliases(yaml.SafeDumper):
    """Writes repeated values in full, without YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _block(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_NoAliases, sort_keys=False, width=10**6, allow_unicode=True)
    return text


class _Writer(yaml.SafeDumper):
    """Writes multi-line texts as blocks."""


def _write_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Writer.add_representer(str, _write_text)


def _written(document: Document) -> str:
    text: str = yaml.dump(document, Dumper=_Writer, sort_keys=False, width=120, allow_unicode=True)
    return text
