"""conf/kubernetes/kserve: KServe knows each field, and a server started like the container answers a chat."""

from __future__ import annotations

import copy
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from imp_service.config import read_settings
from imp_service.models import demo_model_path
from support.calls.http_calls import HttpClient
from support.deploy.manifests import KUBERNETES, VERSIONS, refusals
from support.run.patience import HANGS_AFTER
from support.servers.ray_serve import free_ports
from support.servers.server_process import server_process

PLAIN: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# Text or numbers; the package has no class for them.
FREE = {"object", "ResourceQuantity", "Quantity", "IntOrString"}


def faults(data: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yields unknown fields, missing fields, and values of wrong types."""
    if kind in FREE:
        return
    if kind in PLAIN:
        if not isinstance(data, PLAIN[kind]):
            yield f"{path}: {data!r} is no {kind}"
    elif found := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        for i, item in enumerate(data):
            yield from faults(item, found[1], f"{path}[{i}]")
    elif found := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", kind):
        for name, item in data.items():
            yield from faults(item, found[1], f"{path}.{name}")
    else:
        yield from _faults_of_class(data, _class(kind), path)


def _class(kind: str) -> Any:
    ours = getattr(import_module("kserve.models"), kind, None)
    return ours if ours is not None else getattr(import_module("kubernetes.client"), kind)


def _faults_of_class(data: Any, klass: Any, path: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"{path}: {data!r} is no object"
        return
    types = klass.openapi_types() if callable(klass.openapi_types) else klass.openapi_types
    names = klass.attribute_map() if callable(klass.attribute_map) else klass.attribute_map
    by_name = {name: attribute for attribute, name in names.items()}
    values = {}
    for name, value in data.items():
        if name in by_name:
            values[by_name[name]] = value
            yield from faults(value, types[by_name[name]], f"{path}.{name}")
        else:
            yield f"{path}.{name}: unknown"
    if klass.__module__.startswith("kserve."):
        try:
            klass(**values)
        except ValueError as error:  # a field that must be set
            yield f"{path}: {error}"


FOLDER = KUBERNETES / "kserve"
RUNTIME: dict[str, Any] = yaml.safe_load((FOLDER / "serving_runtime.yaml").read_text())
SERVICE: dict[str, Any] = yaml.safe_load((FOLDER / "inference_service.yaml").read_text())
CLASSES = {"V1alpha1ServingRuntime": RUNTIME, "V1beta1InferenceService": SERVICE}
(CONTAINER,) = RUNTIME["spec"]["containers"]
ENVIRONMENT = {each["name"]: each["value"] for each in CONTAINER["env"]}


@pytest.fixture(scope="module")
def kserve() -> None:
    """Skips unless KServe's Python package is installed."""
    pytest.importorskip("kserve", reason="KServe is not installed here: pip install kserve")


@pytest.mark.parametrize("name", CLASSES)
def test_gwy_6_kserve_knows_every_field(kserve: None, name: str) -> None:
    assert list(faults(CLASSES[name], name)) == []


def test_gwy_6_a_wrong_field_is_found(kserve: None) -> None:
    broken = copy.deepcopy(RUNTIME)
    broken["spec"]["containers"][0]["startupProb"] = {}
    broken["spec"]["multiModel"] = "false"
    broken["spec"]["modelFormats"] = broken["spec"].pop("supportedModelFormats")
    found = {each.partition(":")[0] for each in faults(broken, "V1alpha1ServingRuntime")}
    assert found == {".spec.containers[0].startupProb", ".spec.multiModel", ".spec.modelFormats"}
    del broken["spec"]["containers"]
    assert any("containers" in each for each in faults(broken, "V1alpha1ServingRuntime"))


def test_gwy_6_the_container_is_valid_for_every_supported_version() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "imp"}, "spec": {"containers": [CONTAINER]}}
    assert refusals([pod]) == []
    broken = copy.deepcopy(pod)
    broken["spec"]["containers"][0]["argz"] = []
    assert len(refusals([broken])) == len(VERSIONS)


def test_gwy_6_the_documents_fit_together() -> None:
    predictor = SERVICE["spec"]["predictor"]
    assert predictor["model"]["runtime"] == RUNTIME["metadata"]["name"]
    assert predictor["model"]["modelFormat"]["name"] in {
        each["name"] for each in RUNTIME["spec"]["supportedModelFormats"]
    }
    settings = read_settings(None, variables=ENVIRONMENT).settings
    (port,) = CONTAINER["ports"]
    assert settings.listen.http == (f"[::]:{port['containerPort']}",)
    assert RUNTIME["spec"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    drain = settings.drain.delay + settings.drain.grace
    assert drain.total_seconds() < predictor["terminationGracePeriodSeconds"]
    # KServe mounts the claim's files in this folder.
    assert Path(str(settings.model.path)).parent == Path("/mnt/models")
    assert re.fullmatch(r"pvc://[a-z-]+", predictor["model"]["storageUri"])


@pytest.mark.long
def test_gwy_6_a_server_started_like_the_container_answers(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = ENVIRONMENT | {
        "IMP_LISTEN__HTTP": json.dumps([f"127.0.0.1:{port}"]),
        "IMP_MODEL__PATH": str(demo_model_path()),
        "IMP_KV__BYTES": "8MiB",
    }
    name = SERVICE["metadata"]["name"]
    command, *arguments = [word.replace("{{.Name}}", name) for word in CONTAINER["args"]]
    assert command == "serve"
    with server_process(tmp_path, *arguments, environment=environment) as server:
        server.wait_until_ready()
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            url = f"http://127.0.0.1:{port}{CONTAINER[probe]['httpGet']['path']}"
            with urllib.request.urlopen(url, timeout=HANGS_AFTER) as reply:
                assert reply.status == 200
        client = HttpClient(partial(socket.create_connection, ("127.0.0.1", port), HANGS_AFTER))
        said = [{"role": "user", "content": "Hello"}]
        reply = client.post("/v1/chat/completions", {"model": name, "messages": said, "max_tokens": 4})
        assert (reply.status, reply.json["model"]) == (200, name)
        assert client.get(RUNTIME["spec"]["annotations"]["prometheus.io/path"]).status == 200
        # The host name under which a cluster calls KServe's services.
        host = f"{name}-predictor.default.svc.cluster.local"
        assert client.get("/v1/models", host=host).status == 200
