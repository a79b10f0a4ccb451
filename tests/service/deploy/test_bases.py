"""conf/kubernetes: valid for every supported version, and each requirement of an imp pod."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path

import jsonschema
import pytest
import yaml

from imp_service.cli.command_line import parse
from imp_service.config import Settings, read_settings
from imp_service.config.derived import front_bytes
from support.deploy.inference_pool import PICKER
from support.deploy.manifests import BASES, KUBERNETES, OVERLAYS, VERSIONS, base_documents, kustomized, refusals
from support.deploy.pods import Document, containers_of, imp_of, of_kind, pod_of, ports_of

each_base = pytest.mark.parametrize("base", BASES)


def settings_of(base: str) -> Settings:
    return read_settings(str(KUBERNETES / base / "imp.conf"), variables={}).settings


def port_of(address: str | None) -> int:
    return int(str(address).rpartition(":")[2])


def mounted(documents, container) -> dict[str, dict]:
    """Maps each path in the container to its volume, with the mount's own fields."""
    volumes = {volume["name"]: volume for volume in pod_of(documents)["volumes"]}
    return {mount["mountPath"]: {**volumes[mount["name"]], **mount} for mount in container["volumeMounts"]}


@pytest.mark.long
@each_base
def test_lif_13_lif_14_l17_bases_are_valid_for_every_supported_version(base: str):
    assert VERSIONS[0].startswith("1.29.") and len(VERSIONS) >= 9
    assert refusals(base_documents(base)) == []
    broken = copy.deepcopy(base_documents(base))
    containers_of(pod_of(broken))[0]["restartPolicyy"] = "Always"
    assert len(refusals(broken)) == len(VERSIONS)


@pytest.mark.few(2)
@pytest.mark.parametrize("folder", [*BASES, *OVERLAYS])
def test_lif_13_lif_14_kustomize_builds_valid_documents(folder: str):
    documents = kustomized(folder)
    # The schemas have image volumes from 1.33 on.
    assert refusals(documents, since="1.33" if folder == "overlays/model_image" else "1.29") == []
    (conf,) = (each for each in documents if each["kind"] == "ConfigMap" and "imp.conf" in each["data"])
    base = folder if folder in BASES else "standalone"
    assert conf["data"] == {"imp.conf": (KUBERNETES / base / "imp.conf").read_text()}
    volumes = {volume["name"]: volume for volume in pod_of(documents)["volumes"]}
    assert volumes["imp-conf"]["configMap"] == {"name": conf["metadata"]["name"]}
    assert len(volumes) == len(pod_of(documents)["volumes"])


def test_lif_13_the_sidecar_is_a_native_one():
    pod = pod_of(base_documents("sidecar"))
    assert [(c["name"], c["restartPolicy"]) for c in pod["initContainers"]] == [("imp", "Always")]
    assert [c["name"] for c in pod["containers"]] == ["app"]


@each_base
def test_lif_13_probes_go_to_a_plaintext_port_of_their_own(base: str):
    documents, settings = base_documents(base), settings_of(base)
    imp = imp_of(documents)
    health = port_of(settings.listen.health)
    assert ports_of(imp)["health"] == health
    assert str(health) not in " ".join(settings.listen.grpc)
    probes = {name: imp[f"{name}Probe"]["grpc"] for name in ("startup", "readiness", "liveness")}
    model = {"port": health, "service": "imp.v1.InferenceService"}
    assert probes == {"startup": model, "readiness": model, "liveness": {"port": health, "service": "liveness"}}
    startup = imp["startupProbe"]
    seconds = startup["periodSeconds"] * startup["failureThreshold"]
    assert seconds == 600
    # The roll-out's deadline must be later than the probe's, with time to pull the image and attach volumes before.
    assert of_kind(documents, "Deployment")["spec"]["progressDeadlineSeconds"] >= seconds + 300
    assert ports_of(imp)["metrics"] == port_of(settings.listen.metrics)
    annotations = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": str(port_of(settings.listen.metrics))}


def test_lif_13_data_goes_over_a_socket_in_memory_that_both_containers_see():
    documents, settings = base_documents("sidecar"), settings_of("sidecar")
    (address,) = settings.listen.grpc
    folder = str(Path(address.removeprefix("unix://")).parent)
    (app,) = pod_of(documents)["containers"]
    for container in (imp_of(documents), app):
        volume = mounted(documents, container)[folder]
        assert volume["emptyDir"]["medium"] == "Memory"
        assert "readOnly" not in volume
    assert app["env"] == [{"name": "IMP_TARGET", "value": address}]
    # The group of the socket, whatever user the application runs as.
    assert pod_of(documents)["securityContext"]["fsGroup"] == 65532


@each_base
def test_lif_13_configuration_and_model_are_mounted_read_only(base: str):
    documents = base_documents(base)
    imp = imp_of(documents)
    volumes = mounted(documents, imp)
    assert imp["args"] == ["serve", "--config", "/etc/imp/imp.conf"]
    assert (volumes["/etc/imp"]["configMap"], volumes["/etc/imp"]["readOnly"]) == ({"name": "imp-conf"}, True)
    model = Path(str(settings_of(base).model.path))
    # A persistent volume claim needs no feature gate.
    claim = {"claimName": f"{of_kind(documents, 'Deployment')['metadata']['name']}-model", "readOnly": True}
    assert volumes[str(model.parent)]["persistentVolumeClaim"] == claim and volumes[str(model.parent)]["readOnly"]
    # No other volume: imp writes only its socket.
    assert set(volumes) == {"/etc/imp", "/model"} | ({"/run/imp"} if base == "sidecar" else set())


@pytest.mark.few(2)
@pytest.mark.parametrize("folder", [*BASES, *OVERLAYS])
def test_lif_13_l17_pods_have_no_rights_that_imp_does_not_need(folder: str):
    documents = base_documents(folder) if folder in BASES else kustomized(folder)
    pod = pod_of(documents)
    assert pod["automountServiceAccountToken"] is False
    # A Service named imp would add IMP_PORT and similar variables.
    assert pod["enableServiceLinks"] is False
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, 65532, 65532)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        assert name not in pod
    for container in containers_of(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@each_base
def test_lif_13_the_pod_outlives_its_drain(base: str):
    drain = settings_of(base).drain
    assert pod_of(base_documents(base))["terminationGracePeriodSeconds"] > math.ceil(
        (drain.delay + drain.grace).total_seconds() + 5
    )


@each_base
def test_lif_13_resources_are_promised_in_full_and_leave_the_service_a_cpu(base: str):
    for container in containers_of(pod_of(base_documents(base))):
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert int(imp_of(base_documents(base))["resources"]["limits"]["cpu"]) == settings_of(base).device.threads + 1


def test_lif_14_the_service_is_headless_and_every_selector_finds_the_pods():
    documents = base_documents("standalone")
    deployment, service = of_kind(documents, "Deployment"), of_kind(documents, "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    policy, budget = of_kind(documents, "NetworkPolicy"), of_kind(documents, "PodDisruptionBudget")
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        service["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert {len(selector) for selector in selectors} == {1}
    assert service["spec"]["clusterIP"] == "None"
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["appProtocol"]) == (50051, "grpc", "kubernetes.io/h2c")
    assert (
        [port_of(a) for a in settings_of("standalone").listen.grpc] == [ports_of(imp_of(documents))["grpc"]] == [50051]
    )
    assert budget["spec"]["maxUnavailable"] == 1


def test_lif_14_l17_nothing_goes_out_and_only_named_peers_come_in():
    policy = of_kind(base_documents("standalone"), "NetworkPolicy")["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    opened = {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}
    assert set(opened) == {"grpc", "metrics"} <= set(ports_of(imp_of(base_documents("standalone"))))
    peers = [peer for rule in opened.values() for peer in rule]
    assert all(selector["matchLabels"] for peer in peers for selector in peer.values())


def test_lif_14_autoscaling_follows_the_requests_that_wait():
    documents = base_documents("standalone")
    scaler, deployment = of_kind(documents, "HorizontalPodAutoscaler")["spec"], of_kind(documents, "Deployment")
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]  # each apply would undo the scaler's decision
    (metric,) = scaler["metrics"]
    # test_probes.py reads this metric from a server.
    assert (metric["type"], metric["pods"]["metric"]["name"]) == ("Pods", "imp_requests_waiting")
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 8)


def check_pool(documents: list[Document], variables: dict[str, str]) -> None:
    """Checks that the pool selects the pods, and that its port serves OpenAI's API."""
    settings = read_settings(str(KUBERNETES / "standalone" / "imp.conf"), variables=variables).settings
    pool = of_kind(documents, "InferencePool")["spec"]
    labels = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert pool["selector"]["matchLabels"].items() <= labels.items()
    (address,) = settings.listen.http
    assert pool["targetPorts"] == [{"number": port_of(address)}] == [{"number": ports_of(imp_of(documents))["http"]}]
    assert settings.http.public_metrics
    # Client pods may reach both ports.
    clients = of_kind(documents, "NetworkPolicy")["spec"]["ingress"][0]
    assert {"podSelector": {"matchLabels": {"imp-client": "true"}}} in clients["from"]
    assert clients["ports"] == [{"port": name, "protocol": "TCP"} for name in ("grpc", "http")]


@pytest.mark.long
def test_gwy_4_the_pool_and_the_configuration_of_its_picker_are_valid():
    documents = kustomized("overlays/inference_pool")
    (found,) = (each for each in documents if each["kind"] == "ConfigMap" and "picker.yaml" in each["data"])
    # The picker's Service has the name of its ConfigMap, to which kustomize adds no hash.
    assert found["metadata"]["name"] == of_kind(documents, "InferencePool")["spec"]["endpointPickerRef"]["name"]
    config = yaml.safe_load(found["data"]["picker.yaml"])
    jsonschema.validate(config, PICKER)
    declared = {plugin["type"] for plugin in config["plugins"]}
    (source,), (profile,) = config["dataLayer"]["sources"], config["schedulingProfiles"]
    used = {source["pluginRef"], *(each["pluginRef"] for each in (*source["extractors"], *profile["plugins"]))}
    assert used == declared
    engine = next(each for each in config["plugins"] if each["type"] == "core-metrics-extractor")["parameters"]
    labels = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["llm-d.ai/engine-type"] == engine["defaultEngine"] == engine["engineConfigs"][0]["name"]


@pytest.mark.long
def test_gwy_4_an_unknown_field_of_a_pool_is_refused():
    pool = of_kind(kustomized("overlays/inference_pool"), "InferencePool")
    assert refusals([pool]) == []
    for path in (("spec", "targetPortNumber"), ("spec", "endpointPickerRef", "portNumber")):
        broken = copy.deepcopy(pool)
        *above, name = path
        functools.reduce(lambda node, key: node[key], above, broken)[name] = 8000
        assert len(refusals([broken])) == len(VERSIONS)


def check_front(documents: list[Document]) -> None:
    """Checks that the front reaches imp, that clients reach the front, and that its probes ask it."""
    (front,) = (each for each in containers_of(pod_of(documents)) if each["name"] == "front")
    imp = imp_of(documents)
    variables = {entry["name"]: entry["value"] for entry in imp["env"]}
    conf = str(KUBERNETES / "standalone" / "imp.conf")
    (address,) = read_settings(conf, variables=variables).settings.listen.http
    _, parsed = parse(front["args"])
    assert (parsed.to, parsed.config) == ([address], "/etc/imp/imp.conf")
    folder = str(Path(address.removeprefix("unix://")).parent)
    assert [mounted(documents, each)[folder]["emptyDir"]["medium"] for each in (imp, front)] == ["Memory"] * 2
    assert [port_of(text) for text in parsed.http] == [ports_of(front)["http"]] == [8000]
    assert front["image"] == imp["image"]
    probes = {name: front[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness")}
    assert probes == {
        "readiness": {"path": "/health", "port": "http"},
        "liveness": {"path": "/health/live", "port": "http"},
    }
    assert "readinessProbe" not in imp and "livenessProbe" in imp
    limits = front["resources"]["limits"]
    settings = read_settings(conf, ["front.survive=true"], variables={}).settings
    assert limits["memory"] == f"{front_bytes(settings) // 1024**2}Mi"
    assert front["resources"]["requests"] == limits
    ports = of_kind(documents, "Service")["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(50051, "grpc"), (8000, "http")]
    clients = of_kind(documents, "NetworkPolicy")["spec"]["ingress"][0]
    assert clients["ports"] == [{"port": name, "protocol": "TCP"} for name in ("grpc", "http")]


@pytest.mark.long
@pytest.mark.parametrize("folder", OVERLAYS)
def test_lif_13_overlays_change_what_they_say(folder: str):
    documents = kustomized(folder)
    imp, volumes = imp_of(documents), mounted(documents, imp_of(documents))
    if folder == "overlays/model_image":
        assert imp["image"] == "registry.example/mine/imp:0.1.0"
        reference = {"reference": "registry.example/models/model:1", "pullPolicy": "IfNotPresent"}
        assert volumes["/model"]["image"] == reference
        assert "persistentVolumeClaim" not in volumes["/model"]
        return
    if folder == "overlays/survive":
        check_front(documents)
        return
    variables = {entry["name"]: entry["value"] for entry in imp["env"]}
    if folder == "overlays/inference_pool":
        check_pool(documents, variables)
        return
    settings = read_settings(str(KUBERNETES / "standalone" / "imp.conf"), variables=variables).settings
    files = {settings.tls.cert, settings.tls.key, settings.tls.client_ca, settings.auth.token_file}
    assert {str(Path(str(file)).parent) for file in files} == {"/etc/imp-tls"} <= set(volumes)
    assert len(files) == 4
    assert volumes["/etc/imp-tls"]["secret"] == {"secretName": "imp-tls", "defaultMode": 0o440}
    assert "appProtocol" not in of_kind(documents, "Service")["spec"]["ports"][0]
