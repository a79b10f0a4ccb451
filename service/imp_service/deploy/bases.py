"""The Kustomize bases of conf/kubernetes as data: the build installs them beside the package."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

import imp_service

Document = dict[str, Any]
BaseName = Literal["sidecar", "standalone"]


@dataclass(frozen=True, slots=True)
class Base:
    """One base: its documents in the order of its kustomization, and the imp.conf of its ConfigMap."""

    documents: list[Document]
    conf: Path

    @property
    def name(self) -> str:
        """What all of it is called."""
        return str(workload(self.documents)["metadata"]["name"])

    @property
    def pod(self) -> Mapping[str, Any]:
        """The specification of its pods."""
        return pod_of(self.documents)

    @property
    def model_image(self) -> Mapping[str, Any]:
        """Where its pods find the model file: an image volume's source."""
        found: Mapping[str, Any] = next(volume["image"] for volume in self.pod["volumes"] if volume["name"] == "model")
        return found


def read_base(name: BaseName) -> Base:
    folder = _folder() / name
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (generator,) = kustomization["configMapGenerator"]
    (conf,) = generator["files"]
    documents = [yaml.safe_load((folder / file).read_text()) for file in kustomization["resources"]]
    return Base(documents, folder / conf)


def workload(documents: list[Document]) -> Document:
    """The Deployment among them."""
    return next(document for document in documents if document["kind"] == "Deployment")


def pod_of(documents: list[Document]) -> dict[str, Any]:
    """The specification of the Deployment's pods."""
    found: dict[str, Any] = workload(documents)["spec"]["template"]["spec"]
    return found


def containers_of(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sidecars and containers alike."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def _folder() -> Path:
    # An editable install has two folders of one package: sources, and what the build made.
    return next(path for folder in imp_service.__path__ if (path := Path(folder, "kubernetes")).is_dir())
