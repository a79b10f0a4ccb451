"""imp in the conditions of a pod: an unprivileged user, a read-only root, no home, no shell, no network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.models import demo_model_path
from support.deploy.manifests import KUBERNETES
from support.machine.confined import USER, confined
from support.run.patience import HANGS_AFTER
from support.servers.served import ask, tokens_of
from support.servers.served_models import built_in
from support.servers.server_process import server_process

LOOK = """
import json, os, socket
found = {"uid": os.getuid(), "gid": os.getgid(), "names": sorted(os.environ)}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found["rights"] = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")}
for name, attempt in {
    "write": lambda: open("/tmp/imp-was-here", "w"),
    "beside": lambda: open(os.path.join(os.environ["PYTHONPATH"], "x"), "w"),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9), 1),
}.items():
    try:
        attempt()
    except OSError as error:
        found[name] = error.strerror
print(json.dumps(found))
"""


@pytest.mark.long
def test_l17_the_confinement_of_these_tests_confines(tmp_path: Path):
    ran = subprocess.run(
        [*confined(tmp_path), sys.executable, "-c", LOOK],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    found = json.loads(ran.stdout)
    assert (found["uid"], found["gid"]) == (USER, USER)
    assert found["rights"] == {"CapEff": 0, "CapPrm": 0, "CapBnd": 0, "NoNewPrivs": 1}
    assert {"PATH", "PYTHONPATH"} <= set(found["names"]) and "HOME" not in found["names"]
    assert (found["write"], found["beside"]) == ("Read-only file system", "Read-only file system")
    assert found["connect"] == "Network is unreachable"


@pytest.mark.sweep(quick=lambda base: base == "sidecar")
@pytest.mark.parametrize("base", ["sidecar", "standalone"])
def test_lif_12_lif_13_l17_it_starts_serves_and_ends_as_a_pod_of_the_manifests(tmp_path: Path, base: str):
    canary = built_in().canary
    assert canary is not None  # narrows the type
    text = (KUBERNETES / base / "imp.conf").read_text()
    conf = tmp_path / "imp.conf"
    conf.write_text(text.replace("/run/imp", str(tmp_path)).replace("/model/model.gguf", str(demo_model_path())))
    socket = tmp_path / "imp.sock"
    words = ("--config", str(conf), "--listen", f"unix://{socket}")
    with server_process(tmp_path, *words, settings=("drain.delay=0s",), inside=confined(tmp_path)) as server:
        server.wait_until_ready()
        with server.inference() as stub:
            stream, messages = stub.Generate(ask(list(canary.prompt_ids), 200)), []
            while len(tokens_of(messages)) < 12:
                messages.append(next(stream))
            stream.cancel()
        assert tokens_of(messages)[:12] == list(canary.output_ids[:12])
        assert server.terminate() == 0
    # Of the files that it wrote, only the requested ones are left.
    assert {path.name for path in tmp_path.iterdir()} == {"imp.conf", "stderr.txt"}
