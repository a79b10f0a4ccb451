"""What a container of the image must do: started like `podman run`, and started like a pod of `imp k8s`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from image.container import Container, ran_to_its_end, started
from image.pod import Confinement, Pod, bundle
from image.transcript import ImageError, expect, run, say
from release.checkout import Checkout
from release.image_build import Buildah
from release.images import bill_of, take_image

MIB = 1 << 20
PROMPT, N_TOKENS = "Once upon a time", 24
GREEDY = ("--temperature", "0", "--max-tokens", str(N_TOKENS))
MESSAGE = "What is 2 plus 3?"
JSON = ("-H", "content-type: application/json")
# What the confined process finds out about itself. Filter mode of seccomp is 2.
LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found = {"user": [os.getuid(), os.getgid()], "seccomp": int(status["Seccomp"])}
found["may_gain_rights"] = status["NoNewPrivs"].strip() == "0"
found["capabilities"] = sum(int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd"))
refused = []
for path in ("/tmp/x", "/opt/imp/x", "/x"):
    try:
        open(path, "w")
    except OSError as error:
        refused.append(error.strerror)
print(json.dumps({**found, "writes": sorted(set(refused)), "refused": len(refused)}))
"""
GROW = "import sys\nheld = bytearray(int(sys.argv[1]))\nprint(len(held))"


def check_files(root: Path) -> None:
    """The image has imp with its bytecode, and neither a compiler nor sources."""
    there = [name for name in ("source", "wheels", "usr/bin/g++", "usr/local/bin/g++") if (root / name).exists()]
    expect(there, [], "no compiler, no sources and no wheels are left in the image")
    (package,) = (root / "opt/imp/lib").glob("python3*/site-packages/imp_service")
    compiled = {path.name.partition(".")[0] for path in package.glob("__pycache__/*.pyc")}
    expect(compiled, {path.stem for path in package.glob("*.py")}, "every module has its bytecode")


def check_release(buildah: Buildah, checkout: Checkout, folder: Path) -> None:
    """The archive and the bill of materials are those that tools/release.py takes."""
    archive = buildah.save(checkout.version, checkout.root, folder)
    (folder / "dist").mkdir()
    taken = take_image(archive, checkout, folder / "dist")
    bill = json.loads(bill_of(taken).read_text())
    versions = {each["name"]: each.get("version") for each in bill["components"]}
    expect({"grpcio", "numpy", "tokenizers"} <= versions.keys() and None not in versions.values(), True,
           f"{bill_of(taken).name} has {len(versions)} packages with their versions")  # fmt: skip
    say(f"{taken.name} has {taken.stat().st_size // MIB} MiB")


def check_like_podman(image: Mapping[str, Any], root: Path, folder: Path, revision: str) -> None:
    """The command of the image, as `podman run --read-only --cap-drop all` starts it: over gRPC and over HTTP."""
    user, group = (int(number) for number in image["User"].split(":"))
    confinement = Confinement((user, group), is_root_read_only=True, may_gain_rights=True)
    config = bundle(dict(image), root, image["Cmd"], confinement, {})
    with started(folder, config) as server:
        seconds = server.wait_until(server.is_serving, "it serves")
        say(f"serves after {seconds:.1f} s")
        version = server.inside("imp", "--version", shown="podman exec imp imp --version")
        expect(f"revision: {revision}" in version.splitlines(), True, "the image names its commit")
        server.inside(*image["Healthcheck"]["Test"][1:], shown="podman exec imp imp call health  # HEALTHCHECK")
        expect(json.loads(curl(server, "/health")), {"status": "serving"}, "GET /health")
        expect_text(server, "http://127.0.0.1:8000")
        status, seconds = server.stop(60)
        expect(status, 0, f"SIGTERM ends it in {seconds:.1f} s, with exit status")


def check_pod(image: Mapping[str, Any], root: Path, folder: Path, pod: Pod) -> None:
    """The pod's command, files, rights and limits; its probes, its answers under load, and its drain."""
    folder.mkdir()
    binds = {}
    for number, (target, files) in enumerate(pod.files.items()):
        binds[target] = folder / f"volume-{number}"
        binds[target].mkdir()
        for name, text in files.items():
            (binds[target] / name).write_text(text)
    config = bundle(dict(image), root, pod.arguments, pod.confinement, binds)
    check_confinement(config, folder, pod.confinement)
    with started(folder / "serves", config) as server:
        check_serving(server, pod)


def check_confinement(config: Mapping[str, Any], folder: Path, confinement: Confinement) -> None:
    """The limits bite, seen from a process in them."""
    status, output = ran_to_its_end(folder / "looks", config, ["python", "-c", LOOK])
    if status != 0:
        raise ImageError(f"a look around: exit status {status}\n{output}")
    expected = {
        "user": list(confinement.user),
        "seccomp": 2,
        "may_gain_rights": confinement.may_gain_rights,
        "capabilities": 0,
        "writes": ["Read-only file system"],
        "refused": 3,
    }
    expect(json.loads(output), expected, f"inside: {output.strip()}")
    limit = confinement.memory_bytes
    if limit is None:
        raise ImageError("the manifests limit no memory")
    status, _ = ran_to_its_end(folder / "grows", config, ["python", "-c", GROW, str(limit // 2)])
    expect(status, 0, f"a process of {limit // 2 // MIB} MiB ends in its limit of {limit // MIB} MiB with exit status")
    status, _ = ran_to_its_end(folder / "outgrows", config, ["python", "-c", GROW, str(limit)])
    expect(status, 128 + signal.SIGKILL, f"the kernel kills one of more than {limit // MIB} MiB, exit status")


def check_serving(server: Container, pod: Pod) -> None:
    """Probes, answers, a load, and the drain of the pod's server."""
    health = ("--target", f"127.0.0.1:{pod.ports['health']}")
    ready = (pod.health_services["readiness"], *health)
    alive = (pod.health_services["liveness"], *health)
    seconds = server.wait_until(lambda: server.is_serving(*ready), "the readiness probe passes")
    say(f"the readiness probe passes after {seconds:.1f} s")
    server.imp("call", "health", *alive, shown=True)
    expect_text(server, "http://127.0.0.1:8000")
    server.imp("bench", "--server", "127.0.0.1:50051", "--streams", "8", "--reps", "1", shown=True)
    memory = server.memory()
    expect(memory["limit"], pod.confinement.memory_bytes, "the limit of the control group, in bytes")
    expect(memory["refused"], 0, f"the peak was {memory['peak'] // MIB} MiB; allocations refused at the limit")
    say("SIGTERM")
    server.signal(signal.SIGTERM)
    server.wait_until(lambda: not server.is_serving(*ready), "the readiness probe fails")
    say("the readiness probe fails")
    expect(server.is_serving(*alive), True, "the liveness probe still passes")
    expect(len(server.imp("call", *GREEDY, PROMPT)) > 0, True, "a late call is still answered")
    expect(server.process.wait(pod.grace_seconds), 0, f"it ends within {pod.grace_seconds:.0f} s, with exit status")
    events = [json.loads(line).get("event") for line in server.log().splitlines() if line.startswith("{")]
    expect(events.count("stopped"), 1, "the log ends with one line `stopped`")


def curl(server: Container, path: str, body: Mapping[str, Any] | None = None, port: int = 8000) -> str:
    """Asks with curl in the network of the container; prints the command and the answer."""
    words: Sequence[str] = () if body is None else (*JSON, "-d", json.dumps(body))
    url = f"http://127.0.0.1:{port}{path}"
    shown = f"curl {url}" + ("" if body is None else f" -d '{json.dumps(body)}'")
    return server.near("curl", "--silent", "--show-error", "--fail-with-body", *words, url, shown=shown)


def expect_text(server: Container, base: str) -> None:
    """The text over gRPC and over HTTP is that of this machine's imp, which another compiler built."""
    here = run([sys.executable, "-m", "imp_service", "run", "--raw", *GREEDY, PROMPT]).strip()
    over_grpc = server.imp("call", "generate", *GREEDY, PROMPT, shown=True).strip()
    expect(over_grpc, here, "the text is that of `imp run --raw` on this machine")
    port = int(base.rpartition(":")[2])
    body = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0}
    answer = json.loads(
        server.near("curl", "--silent", "--fail-with-body", *JSON, "-d", json.dumps(body), f"{base}/v1/completions")
    )
    expect(answer["choices"][0]["text"].strip(), here, "/v1/completions has the same text")
    chat = {"messages": [{"role": "user", "content": MESSAGE}], "max_tokens": N_TOKENS, "temperature": 0}
    answer = json.loads(curl(server, "/v1/chat/completions", chat, port))
    same = server.imp("call", "chat", *GREEDY, MESSAGE, shown=True).strip()
    expect(answer["choices"][0]["message"]["content"].strip(), same, "the chat has the same answer over HTTP and gRPC")
