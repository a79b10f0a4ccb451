"""A channel over several servers calls those whose health is SERVING, as servers start, drain and die."""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from imp_service.pb import tokenizer_pb2 as pb
from imp_service.pb import tokenizer_pb2_grpc
from support.run.patience import HANGS_AFTER
from support.servers.server_process import ServerProcess, server_process

# The service config of a client of several servers. README and conf/kubernetes refer to it.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": "imp.v1.InferenceService"},
    "methodConfig": [
        {
            "name": [{}],
            "waitForReady": True,
            "timeout": "30s",
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}
# Far more calls than are made before any change is noticed.
PATIENCE = 20_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Balanced:
    """One channel over several addresses; reports which server answers."""

    def __init__(self, ports: list[int]) -> None:
        options = [
            ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.channel = grpc.insecure_channel(f"ipv4:{addresses}", options=options)
        self._tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(self.channel)

    def ask(self) -> str:
        """Returns the id of the instance that answers."""
        _, call = self._tokenizer.Tokenize.with_call(pb.TokenizeRequest(texts=["a"]))
        return str(dict(call.initial_metadata())["imp-instance-id"])

    def ask_until(self, expected: set[str]) -> None:
        """Calls until exactly these instances answer in turn."""
        turn: list[str] = []
        for _ in range(PATIENCE):
            turn = [*turn, self.ask()][-2 * len(expected) :]
            if Counter(turn) == dict.fromkeys(expected, 2):
                return
        raise AssertionError(f"{turn}, expected turns of {expected}")


def instance_of(port: int) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        _, call = stub.Tokenize.with_call(pb.TokenizeRequest(texts=["a"]), wait_for_ready=True, timeout=HANGS_AFTER)
        return str(dict(call.initial_metadata())["imp-instance-id"])


@pytest.fixture
def ports() -> list[int]:
    return [free_port() for _ in range(3)]


@pytest.fixture
def balanced(ports: list[int]) -> Iterator[Balanced]:
    made = Balanced(ports)
    with made.channel:
        yield made


@pytest.mark.long
def test_calls_go_round_the_servers_that_are_well(tmp_path: Path, ports: list[int], balanced: Balanced) -> None:
    with ExitStack() as servers:

        def start(index: int) -> ServerProcess:
            folder = tmp_path / str(index)
            folder.mkdir()
            words = ("--listen", f"127.0.0.1:{ports[index]}")
            settings = ("drain.delay=1h", "text.threads=1", "kv.bytes=1MiB")
            return servers.enter_context(server_process(folder, *words, settings=settings))

        first, second = start(0), start(1)
        first.wait_until_ready(), second.wait_until_ready()
        instances = [instance_of(port) for port in ports[:2]]
        balanced.ask_until(set(instances))
        # A server that starts later joins the rotation, and each gets an equal share.
        start(2).wait_until_ready()
        instances.append(instance_of(ports[2]))
        balanced.ask_until(set(instances))
        assert Counter(balanced.ask() for _ in range(12)) == dict.fromkeys(instances, 4)
        # A draining server still answers calls of its own channel; the balanced channel follows its health.
        first.signal(signal.SIGTERM)
        balanced.ask_until(set(instances[1:]))
        assert instance_of(ports[0]) == instances[0]
        assert Counter(balanced.ask() for _ in range(8)) == dict.fromkeys(instances[1:], 4)
        # A server that dies fails no call.
        second.signal(signal.SIGKILL)
        assert instances[2] in {balanced.ask() for _ in range(4)}
        balanced.ask_until({instances[2]})
