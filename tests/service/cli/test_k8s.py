"""imp k8s: the bases with a model's own numbers are valid for every supported version; and what it refuses."""

from __future__ import annotations

import json
import re
from importlib import import_module

import pytest

from imp_service.config import read_settings
from imp_service.config.address import Address
from imp_service.models import demo_model_path
from support.deploy.manifests import KUBERNETES, base_documents, base_files, kustomized, refusals
from support.deploy.pods import containers_of, imp_of, of_kind, pod_of, ports_of, stream_documents
from support.machine.command_line import error_lines
from support.models.tiny_vision_models import write_vision_files

DEMO = str(demo_model_path())
OBSERVABILITY = {"kubernetes.io/metadata.name": "observability"}


def _manifests(call, *words: str) -> tuple[list[dict], str]:
    status, out, err = call("k8s", *words)
    assert status == 0, err
    return stream_documents(out), err


def _settings(documents, tmp_path):
    (tmp_path / "imp.conf").write_text(of_kind(documents, "ConfigMap")["data"]["imp.conf"])
    return read_settings(str(tmp_path / "imp.conf"), variables={}).settings


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--sidecar",),
        ("-m", DEMO, "--model-claim", "models", "--replicas", "2-5", "--name", "stories", "--image", "r.example/imp:1"),
        ("--sidecar", "-m", DEMO, "--replicas", "3", "--app-image", "r.example/shop@sha256:" + "1" * 64),
        ("-m", DEMO, "-c", "128", "--replicas", "1", "--set", "device.threads=1", "--set", "drain.grace=10m"),
    ],
)
def test_lif_13_lif_14_manifests_are_valid_and_numbers_are_those_of_inspect(call, tmp_path, words: tuple[str, ...]):
    documents, _ = _manifests(call, *words)
    assert refusals(documents) == []
    settings, imp = _settings(documents, tmp_path), imp_of(documents)
    sizes = ("--set", f"kv.bytes={settings.kv.bytes}", "--set", f"device.threads={settings.device.threads}")
    context = settings.model.overrides.max_context
    status, out, err = call("inspect", DEMO, *sizes, *(("-c", str(context)) if context else ()), "--json")
    assert status == 0, err
    memory = json.loads(out)["memory"]
    assert memory["items"]["kv"] == settings.kv.bytes
    asked = imp["resources"]["limits"]
    assert imp["resources"]["requests"] == asked
    assert asked["cpu"] == str(settings.device.threads + 1)
    given = int(asked["memory"].removesuffix("Mi")) * 1024**2
    assert 0 < given - memory["total_bytes"] <= 16 * 1024**2
    grace = settings.drain.delay + settings.drain.grace
    assert pod_of(documents)["terminationGracePeriodSeconds"] > grace.total_seconds() + 5


@pytest.mark.long
def test_lif_13_the_pod_has_room_for_what_it_then_loads(call, tmp_path, monkeypatch: pytest.MonkeyPatch):
    from imp_service.config import machine

    core_load = import_module("imp_service.core.load")
    documents, _ = _manifests(call, "-m", DEMO)
    given = int(imp_of(documents)["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024**2
    monkeypatch.setattr(core_load, "memory_limit", lambda: machine.MemoryLimit(given, "memory.max"))
    text = of_kind(documents, "ConfigMap")["data"]["imp.conf"]
    assert 'path = "/model/demo.gguf"\n' in text
    (tmp_path / "imp.conf").write_text(text.replace("/model/demo.gguf", DEMO))
    loaded = core_load.load_weights(read_settings(str(tmp_path / "imp.conf"), variables={}))
    try:
        assert loaded.model.memory["items"]["kv"] == loaded.config.settings.kv.bytes
        assert sum(loaded.model.memory["items"].values()) <= given
    finally:
        loaded.client.close()


def test_without_options_it_is_the_base_that_kustomize_builds(call):
    """The manifests differ from the base in the ConfigMap's name, the model's resources, and an unused volume."""
    for base in ("standalone", "sidecar"):
        documents, _ = _manifests(call, f"--{base}", "-m", DEMO)
        imp_of(documents)["resources"] = imp_of(base_documents(base))["resources"]
        built = kustomized(base)
        for stream in (documents, built):
            (conf,) = (v for v in pod_of(stream)["volumes"] if v["name"] == "imp-conf")
            assert conf["configMap"]["name"] == of_kind(stream, "ConfigMap")["metadata"]["name"]
            conf["configMap"]["name"] = "imp-conf"
            pod_of(stream)["volumes"].sort(key=lambda volume: volume["name"])
        by_kind = [{d["kind"]: d for d in stream if d["kind"] != "ConfigMap"} for stream in (documents, built)]
        assert by_kind[0] == by_kind[1]


def test_a_name_is_carried_through_every_selector(call):
    documents, _ = _manifests(call, "--name", "stories", "-m", DEMO, "--model-image", "r.example/stories:2")
    assert {d["metadata"]["name"] for d in documents if d["kind"] != "ConfigMap"} == {"stories"}
    assert of_kind(documents, "ConfigMap")["metadata"]["name"].startswith("stories-conf-")
    label = {"app.kubernetes.io/instance": "stories"}
    assert of_kind(documents, "Deployment")["spec"]["selector"] == {"matchLabels": label}
    assert of_kind(documents, "Service")["spec"]["selector"] == label
    assert of_kind(documents, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == "stories"
    assert imp_of(documents)["name"] == "imp"
    (volume,) = (v for v in pod_of(documents)["volumes"] if v["name"] == "model")
    assert volume["image"] == {"reference": "r.example/stories:2", "pullPolicy": "IfNotPresent"}


def test_replicas_are_fixed_or_the_autoscalers(call):
    documents, _ = _manifests(call, "--replicas", "3")
    assert of_kind(documents, "Deployment")["spec"]["replicas"] == 3
    assert "HorizontalPodAutoscaler" not in {d["kind"] for d in documents}
    documents, _ = _manifests(call, "--replicas", "2-9")
    scaler = of_kind(documents, "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 9)
    assert "replicas" not in of_kind(documents, "Deployment")["spec"]


def test_the_configuration_is_a_new_object_when_it_changes(call):
    names = {
        of_kind(_manifests(call, "--set", f"device.threads={threads}")[0], "ConfigMap")["metadata"]["name"]
        for threads in (1, 1, 2)
    }
    assert len(names) == 2


def test_the_built_in_model_needs_no_volume_and_placeholders_are_reported(call, tmp_path):
    documents, err = _manifests(call, "--image", "r.example/imp:1")
    assert "model" not in {v["name"] for v in pod_of(documents)["volumes"]}
    assert "/model" not in {m["mountPath"] for c in containers_of(pod_of(documents)) for m in c["volumeMounts"]}
    assert _settings(documents, tmp_path).model.path is None
    assert err == ""
    assert "is a placeholder, --image names yours" in _manifests(call, "-m", DEMO)[1]


def test_the_pods_settings_are_those_of_the_base_and_set_alone(call, tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "imp.conf").write_text("[scheduler]\nmax_running = 7\n")
    monkeypatch.setenv("IMP_DEVICE__THREADS", "1")
    words = ("--set", "scheduler.max_waiting=9", "--set", "model.path=/model/a/b.gguf", "-m", DEMO)
    settings = _settings(_manifests(call, *words)[0], tmp_path)
    assert (settings.scheduler.max_running, settings.scheduler.max_waiting) == (64, 9)
    assert (settings.device.threads, settings.model.path) == (3, "/model/a/b.gguf")


def _http_ports(documents) -> tuple[object, ...]:
    """What a standalone stream has for HTTP: the container's port, that of the Service, and what clients may reach."""
    ports = of_kind(documents, "Service")["spec"]["ports"]
    (service,) = [port for port in ports if port["name"] == "http"] or [None]
    clients = of_kind(documents, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    return ports_of(imp_of(documents)).get("http"), service, clients


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "port"),
    [(("--http",), 8000), (("--set", 'listen.http=["0.0.0.0:8081"]'), 8081), (("--http", "--name", "stories"), 8000)],
)
def test_lif_20_http_has_its_ports_in_every_object(call, tmp_path, words: tuple[str, ...], port: int):
    documents, _ = _manifests(call, *words)
    assert refusals(documents) == []
    (address,) = _settings(documents, tmp_path).listen.http
    assert Address(address).port == port and not Address(address).is_local
    container, service, clients = _http_ports(documents)
    assert container == port
    assert service == {"name": "http", "port": port, "targetPort": "http", "appProtocol": "http"}
    assert clients == [{"port": name, "protocol": "TCP"} for name in ("grpc", "http")]
    assert call("k8s", *words)[1].count(f":{port}/v1") == 1


def test_lif_20_without_http_no_object_mentions_it(call, tmp_path):
    documents, _ = _manifests(call)
    assert _settings(documents, tmp_path).listen.http == ()
    assert _http_ports(documents) == (None, None, [{"port": "grpc", "protocol": "TCP"}])


def test_lif_20_http_of_a_sidecar_is_for_its_pod_alone(call, tmp_path):
    documents, _ = _manifests(call, "--sidecar", "--http")
    assert refusals(documents) == []
    assert _settings(documents, tmp_path).listen.http == ("127.0.0.1:8000",)
    assert set(ports_of(imp_of(documents))) == {"health", "metrics"}
    documents, _ = _manifests(call, "--sidecar", "--set", 'listen.http=["[::]:8000"]')
    assert refusals(documents) == [] and ports_of(imp_of(documents))["http"] == 8000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", 'listen.http=["127.0.0.1:8000"]'), "--set listen.http: 127.0.0.1:8000: no other pod reaches it"),
        (("--set", 'listen.http=["[::]:0"]'), "--set listen.http: [::]:0: expected a port"),
        (("--set", 'listen.http=["[::]:80", "[::]:81"]'), "--set listen.http: found 2 ports, expected one"),
        (("--http", "--set", 'listen.http=["[::]:80"]'), "--set listen.http: given together with --http"),
        (("--sidecar", "--standalone"), "not allowed with argument"),
        (("--name", "Imp"), "--name: found Imp"),
        (("--name", "a" * 41), "--name: found aaa"),
        (("--image", "a b"), "--image: found a b"),
        (("--replicas", "0"), "--replicas: found 0"),
        (("--replicas", "3-2"), "--replicas: found 3-2, expected the lesser number first"),
        (("--sidecar", "--replicas", "1-2"), "--replicas: a range with --sidecar"),
        (("--app-image", "x"), "--app-image: given without --sidecar"),
        (("--model-claim", "models"), "given without --model"),
        (("--set", 'listen.grpc=["[::]:1"]'), "--set listen.grpc: the bases define the ports"),
        (("--set", "model.path=x.gguf"), "--set model.path: given without --model"),
    ],
)
def test_l18_what_would_not_fit_the_manifests_is_refused(call, words: tuple[str, ...], said: str):
    status, out, err = call("k8s", *words)
    assert (status, out) == (64, ""), err
    line, advice = err.splitlines()
    assert line.startswith("imp: error: USAGE: ") and said in line
    assert advice == "imp k8s --help lists what it takes"


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "words",
    [
        ("--set", "scheduler.max_running"),
        ("--set", "scheduler.max_runing=1"),
        ("--set", "scheduler.max_running=many"),
        ("--set", "tls.key=/k"),
        ("--set", "nothing.here=1"),
        ("--set", "kv.bytes"),
        ("--set",),
        ("-c", "long"),
    ],
)
def test_set_is_refused_in_the_same_words_as_elsewhere(call, words: tuple[str, ...]):
    """The error is the same as that of `imp serve` and `imp config check`, except for the line that names the help."""

    def told(*command: str) -> tuple[int, str]:
        status, out, err = call(*command, *words)
        assert out == ""
        return status, error_lines(err)[-1]

    assert told("k8s") == told("serve")
    assert told("k8s")[0] in (64, 78)


def test_a_cache_that_cannot_hold_the_context_is_refused(call):
    status, out, err = call("k8s", "-m", DEMO, "-c", "512", "--set", "kv.bytes=64KiB")
    assert (status, out) == (64, "")
    assert err.startswith("imp: error: FIELD_INVALID: ")
    assert call("k8s", "-m", "none.gguf")[0] == 66
    assert call("k8s", "--set", "scheduler.max_runing=1")[0] == 78


def test_the_sizes_are_explained_above_the_documents(call):
    for words, n_lines in (((), 4), (("--set", "kv.bytes=1MiB"), 3)):
        _, out, _ = call("k8s", *words)
        head = out[: out.index("---\n")].splitlines()
        assert (len(head), {line[0] for line in head}) == (n_lines, {"#"})
        assert ("make it smaller" in "".join(head)) is (not words)
    assert re.fullmatch(r"# Memory: weights .+, kv 1\.0 MiB, scratch .+, logits .+, reserve 653 MiB;", head[0])


def test_kubectl_reads_the_stream(call, tmp_path):
    """The manifests are a resource of a kustomization: kubectl can parse them offline."""
    _, out, _ = call("k8s", "-m", DEMO, "--name", "stories")
    (tmp_path / "stories.yaml").write_text(out)
    (tmp_path / "kustomization.yaml").write_text("resources: [stories.yaml]\n")
    assert sorted(d["kind"] for d in kustomized(tmp_path)) == sorted(d["kind"] for d in stream_documents(out))


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--name", "stories"), ("--sidecar", "--name", "shop")])
def test_lif_13_the_default_volume_is_a_claim_that_every_cluster_has(call, words: tuple[str, ...]):
    documents, _ = _manifests(call, "-m", DEMO, *words)
    name = of_kind(documents, "Deployment")["metadata"]["name"]
    (volume,) = (v for v in pod_of(documents)["volumes"] if v["name"] == "model")
    assert volume == {"name": "model", "persistentVolumeClaim": {"claimName": f"{name}-model", "readOnly": True}}
    assert refusals(documents) == []


def comments(text: str) -> list[str]:
    return re.findall(r"(?:^|\s)# (.+)$", text, re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("base", ["standalone", "sidecar"])
def test_lif_13_comments_survive_generation(call, base: str):
    """The manifests keep the comments of the base, and those of imp.conf whose value is unchanged."""
    out = call("k8s", f"--{base}", "-m", DEMO, "--set", "device.threads=1", "--name", "stories")[1]
    files = [KUBERNETES / base / name for name in base_files(base)]
    expected = [comment for file in files for comment in comments(file.read_text())]
    conf = comments((KUBERNETES / base / "imp.conf").read_text())
    changed = [comment for comment in conf if comment.startswith("of 4 CPUs")]
    kept = comments(out)
    assert len(expected) >= 4 and len(changed) == 1 and len(conf) >= 3
    assert [comment for comment in (*expected, *conf) if comment not in kept] == changed


@pytest.mark.long
def test_lif_13_what_is_taken_out_goes_with_its_comment(call):
    with_model, without = call("k8s", "-m", DEMO)[1], call("k8s")[1]
    assert "The model's file." in with_model and "The model's file." not in without
    fixed = call("k8s", "--replicas", "3")[1]
    assert "# Set `replicas` here if there is no HorizontalPodAutoscaler.\n  replicas: 3\n" in fixed


EGRESS = {
    "http://otel.observability.svc:4317": [{"namespaceSelector": {"matchLabels": OBSERVABILITY}}],
    "http://otel.observability.svc.cluster.local": [{"namespaceSelector": {"matchLabels": OBSERVABILITY}}],
    "http://otel:4317": [{"podSelector": {}}],
    "https://collector.example.com": None,
}


@pytest.mark.long
@pytest.mark.parametrize("endpoint", EGRESS)
def test_lif_14_egress_follows_the_collector_of_spans(call, endpoint: str):
    documents, _ = _manifests(call, "--set", f"tracing.endpoint={endpoint}")
    assert refusals(documents) == []
    dns, collector = of_kind(documents, "NetworkPolicy")["spec"]["egress"]
    assert dns == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert (collector.get("to"), collector["ports"]) == (EGRESS[endpoint], [{"port": 4317, "protocol": "TCP"}])
    assert (
        "# Spans need an image that was built with EXTRAS=otel.\n"
        in call("k8s", "--set", f"tracing.endpoint={endpoint}")[1]
    )


@pytest.mark.long
def test_lif_14_an_address_needs_no_name_and_the_pod_itself_no_rule(call):
    def egress(endpoint: str) -> list[dict]:
        documents, _ = _manifests(call, "--set", f"tracing.endpoint={endpoint}")
        return of_kind(documents, "NetworkPolicy")["spec"]["egress"]

    ports = [{"port": 5000, "protocol": "TCP"}]
    assert egress("http://10.1.2.3:5000") == [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": ports}]
    assert egress("http://[2001:db8::1]:5000") == [{"to": [{"ipBlock": {"cidr": "2001:db8::1/128"}}], "ports": ports}]
    assert egress("http://127.0.0.1:4317") == egress("http://localhost:4317") == []


def test_vis_4_pods_have_room_for_the_images_of_their_model(call, tmp_path):
    model, projector = write_vision_files(tmp_path / "here")
    _, out, _ = call("k8s", "-m", str(model))
    assert ", projector " in out and ", media 64.0 MiB, " in out
    assert "must hold the file /model/tiny.gguf and its projector, mounted at /model." in out
    named = ("--set", f"model.projector=/model/{projector.name}")
    _, same, _ = call("k8s", "-m", str(model), *named)
    assert f'projector = "/model/{projector.name}"' in same and ", media 64.0 MiB, " in same
    projector.unlink()
    _, out, _ = call("k8s", "-m", str(model))
    assert ", media" not in out and "must hold the file /model/tiny.gguf, mounted at /model." in out
    status, _, err = call("k8s", "-m", str(model), *named)
    assert status == 66 and f"model.projector of tiny.gguf: {projector}" in err
