"""docs/kubernetes.md: its commands run, its documents are valid, its client balances over all addresses of a name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from imp_service.cli.command_line import parse
from imp_service.config import read_settings
from imp_service.models import demo_model_path
from support.deploy.manifests import VERSIONS, refusals, require_kubectl
from support.deploy.pods import Document, imp_of, of_kind, ports_of, stream_documents
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
BLOCKS = re.findall(r"^```([a-z ]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = ("deployment", "service", "network_policy", "autoscaler")
# Only a cluster or a private registry answers these.
OUTSIDE = tuple(f"kubectl {verb}" for verb in ("apply", "create", "rollout", "logs", "label", "get", "describe"))


def blocks(kind: str) -> list[str]:
    return [text for info, text in BLOCKS if info == kind]


def test_lif_13_every_block_is_run_read_or_of_a_cluster_alone() -> None:
    assert {info for info, _ in BLOCKS} == {"console", "console cluster", "yaml", "python"}
    lines = "".join(blocks("console cluster")).splitlines()
    assert [line for line in lines if not line.startswith((*OUTSIDE, "podman ", "helm "))] == []


@pytest.mark.long
def test_lif_13_lif_14_the_commands_run_and_write_what_a_cluster_takes(tmp_path: Path) -> None:
    require_kubectl()
    (tmp_path / "model.gguf").symlink_to(demo_model_path())
    environment = {**clean_environment(tmp_path), "IMP": str(ROOT)}
    (tmp_path / "imp").write_text(f'#!/bin/sh\nexec {sys.executable} -m imp_service "$@"\n')
    (tmp_path / "imp").chmod(0o755)
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    script = "set -eu\n" + "".join(blocks("console"))
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    written = re.findall(r"> (\S+\.yaml)$", script, re.MULTILINE)
    assert len(written) == 7
    for name in written:
        documents = stream_documents((tmp_path / name).read_text())
        assert refusals(documents, since=VERSIONS[-1]) == [], name
        assert imp_of(documents)["image"].startswith("registry.example/imp")
    assert of_kind(stream_documents((tmp_path / "stories.yaml").read_text()), "Deployment")["spec"]["replicas"] == 2


def check_front(front: Document, service: Document) -> None:
    """Checks the page's Deployment of fronts and its Service."""
    template = front["spec"]["template"]
    (container,) = template["spec"]["containers"]
    _, parsed = parse(container["args"])
    host, _, port = parsed.to[0].partition(":")
    base = [yaml.safe_load((ROOT / "conf/kubernetes/standalone" / f"{name}.yaml").read_text()) for name in FILES]
    assert host == of_kind(base, "Service")["metadata"]["name"] and port == "8000"
    drain = read_settings(None, parsed.assignments, variables={}).settings.drain
    assert template["spec"]["terminationGracePeriodSeconds"] > (drain.delay + drain.grace).total_seconds() + 5
    assert template["metadata"]["labels"].items() >= {**service["spec"]["selector"], "imp-client": "true"}.items()
    assert front["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert [each["containerPort"] for each in container["ports"]] == [service["spec"]["ports"][0]["port"]]


def test_lif_13_the_documents_of_the_page_are_valid_and_fit_the_manifests() -> None:
    documents = [document for text in blocks("yaml") for document in yaml.safe_load_all(text)]
    ours = [document for document in documents if "." not in document.get("apiVersion", ".").partition("/")[0]]
    kinds = [document["kind"] for document in ours]
    assert kinds == ["PersistentVolumeClaim", "Job", "Deployment", "Service"]
    assert refusals(ours) == []
    claim, job, front, service = ours
    check_front(front, service)
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"] == "imp-model"
    route, monitor, adapter = (document for document in documents if document not in ours)
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    overlay = ROOT / "conf/kubernetes/overlays/inference_pool"
    pool = yaml.safe_load((overlay / "inference_pool.yaml").read_text())
    assert (f"{backend['group']}/v1", backend["kind"], backend["name"]) == (
        pool["apiVersion"],
        pool["kind"],
        pool["metadata"]["name"],
    )
    assert f"'{json.dumps(route['spec']['hostnames'])}'" in (overlay / "kustomization.yaml").read_text()
    base = [yaml.safe_load((ROOT / "conf/kubernetes/standalone" / f"{name}.yaml").read_text()) for name in FILES]
    pods = of_kind(base, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert [each["port"] for each in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    assert "metrics" in ports_of(imp_of(base))
    (rule,) = adapter["rules"]["custom"]
    metric = of_kind(base, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert rule["name"]["matches"] == metric and rule["seriesQuery"].startswith(f"{metric}{{")
    policy = str(of_kind(base, "NetworkPolicy"))
    labels = re.findall(r"^\| `([a-z-]+): \"true\"`", PAGE, re.MULTILINE)
    assert len(labels) == 2 and all(f"'{label}': 'true'" in policy for label in labels)


@pytest.mark.long
def test_lif_13_the_client_of_the_page_calls_by_name(tmp_path: Path) -> None:
    (program,) = blocks("python")
    with server_process(tmp_path) as server:
        port = server.address.rpartition(":")[2]
        told = program.replace("dns:///imp:50051", f"dns:///localhost:{port}")
        assert told != program
        command = [sys.executable, "-c", told]
        environment = clean_environment(tmp_path)
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.split()) > 5
