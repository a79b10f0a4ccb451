"""Starts Ray Serve as its users do: conf/ray/serve.yaml behind Ray's gRPC proxy, on separate ports."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import yaml

from imp_service.pb import tokenizer_pb2, tokenizer_pb2_grpc
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER

ROOT = Path(__file__).resolve().parents[3]
SERVE = Path(sys.executable).with_name("serve")
# Ray's own limits are seconds, which a busy machine may need just to import Ray. Ray repeats a check that was too late.
PATIENT = {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    # Ray's own is 15: on a busy machine its workers would not run.
    "RAY_worker_niceness": "0",
}


def free_ports(n: int) -> list[int]:
    """Returns free ports between those of Ray's workers and those that systems assign, because Ray opens many."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in range(20_000 + os.getpid() % 10_000, 32_000):
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("", port))
                found.append(port)
            if len(found) == n:
                return found
    raise AssertionError("no free ports")


@dataclass(frozen=True)
class RayAddresses:
    """The addresses of Ray's proxies."""

    grpc: str
    # The base URL for OpenAI's clients.
    url: str


@contextlib.contextmanager
def serve_behind_ray(folder: Path, **arguments: str) -> Iterator[RayAddresses]:
    """Serves two replicas behind Ray's proxies. `folder` is the processes' home; `arguments` go to the application."""
    config = yaml.safe_load((ROOT / "conf" / "ray" / "serve.yaml").read_text())
    config["grpc_options"]["port"], config["http_options"]["port"] = free_ports(2)
    config["applications"][0]["args"] |= {"kv.bytes": "8MiB", **arguments}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    environment = {**clean_environment(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", **PATIENT}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(SERVE), "run", "serve.yaml"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    target = f"127.0.0.1:{config['grpc_options']['port']}"
    prefix = config["applications"][0]["route_prefix"]
    url = f"http://127.0.0.1:{config['http_options']['port']}{prefix}/v1"
    try:
        _wait_until_served(target, process, folder / "log.txt")
        yield RayAddresses(target, url)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(HANGS_AFTER)
        finally:
            process.kill()


def replica_processes(folder: Path) -> list[int]:
    """Returns the replicas of the Ray whose home is `folder`."""
    return [
        int(process.name)
        for process in Path("/proc").iterdir()
        if process.name.isdecimal()
        and b"ServeReplica" in _read(process / "cmdline")
        and b"HOME=" + os.fsencode(folder) in _read(process / "environ").split(b"\0")
    ]


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):  # it is gone
        return path.read_bytes()
    return b""


def _wait_until_served(target: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + HANGS_AFTER
    descriptor = os.pidfd_open(process.pid)
    try:
        while True:
            with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
                with contextlib.suppress(grpc.RpcError):
                    stub.Tokenize(tokenizer_pb2.TokenizeRequest(texts=["a"]), timeout=5)
                    return
            # Waits for the process to end between two checks.
            ended, _, _ = select.select([descriptor], [], [], 0.5)
            assert not ended and time.monotonic() < give_up, log.read_text()[-4000:]
    finally:
        os.close(descriptor)
