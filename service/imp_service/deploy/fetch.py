"""The init container that downloads a model of a hub when a pod starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from imp_service.deploy.egress import DNS, Rule

NAME = "fetch-model"
FOLDER = "/model"
# Besides the model: the digests, and what the hub's library writes.
_SPARE_BYTES = 256 * 1024**2
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Fetch:
    """A model that each pod downloads into a volume of its own."""

    reference: str  # as imp pull takes it
    commit: str
    n_bytes: int
    endpoint: str | None  # of another hub than Hugging Face

    def volume(self) -> dict[str, object]:
        """The source of the volume: a folder on the node's disk."""
        return {"emptyDir": {"sizeLimit": f"{-(-(self.n_bytes + _SPARE_BYTES) // _MIB)}Mi"}}

    def egress(self) -> list[Rule]:
        """The rules of the NetworkPolicy: names, and the hub and its storage, whose addresses are not known."""
        hub = urlsplit(self.endpoint or "https://")
        port = hub.port or (80 if hub.scheme == "http" else 443)
        return [DNS, {"ports": [{"port": port, "protocol": "TCP"}]}]

    def container(self, imp: Mapping[str, Any]) -> dict[str, Any]:
        """The container, with the image, the resources and the rights of imp's own."""
        token = {"name": "hf-token", "key": "token", "optional": True}
        # The rest of the file system is read-only.
        variables: list[dict[str, Any]] = [{"name": "HF_HOME", "value": f"{FOLDER}/.hub"}]
        if self.endpoint is not None:
            variables.append({"name": "HF_ENDPOINT", "value": self.endpoint})
        return {
            "name": NAME,
            "image": imp["image"],
            "args": ["pull", self.reference, "--revision", self.commit, "--to", FOLDER],
            "env": [*variables, {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}],
            "resources": imp["resources"],
            "securityContext": imp["securityContext"],
            "volumeMounts": [{"name": "model", "mountPath": FOLDER}],
        }
