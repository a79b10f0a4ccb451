"""The Kustomize bases of conf/kubernetes as data: the build installs them next to the package."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

import imp_service

Document = dict[str, Any]
BaseName = Literal["sidecar", "standalone"]


@dataclass(frozen=True, slots=True)
class Base:
    """One base: the texts of its documents in the order of its kustomization, and the imp.conf of its ConfigMap."""

    texts: tuple[str, ...]
    conf: Path

    @property
    def documents(self) -> list[Document]:
        """The parsed documents."""
        return [yaml.safe_load(text) for text in self.texts]

    @property
    def name(self) -> str:
        """The name of all objects."""
        return str(workload(self.documents)["metadata"]["name"])

    @property
    def pod(self) -> Mapping[str, Any]:
        """The specification of its pods."""
        found: Mapping[str, Any] = workload(self.documents)["spec"]["template"]["spec"]
        return found


def read_base(name: BaseName) -> Base:
    folder = _folder() / name
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (generator,) = kustomization["configMapGenerator"]
    (conf,) = generator["files"]
    return Base(tuple((folder / file).read_text() for file in kustomization["resources"]), folder / conf)


def workload(documents: list[Document]) -> Document:
    """The Deployment among them."""
    return next(document for document in documents if document["kind"] == "Deployment")


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """Sidecars and containers alike, each with its place in the pod's specification."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind, [])):
            yield (kind, number), container


def _folder() -> Path:
    # An editable install has two folders for the package: the sources and the build.
    return next(path for folder in imp_service.__path__ if (path := Path(folder, "kubernetes")).is_dir())
