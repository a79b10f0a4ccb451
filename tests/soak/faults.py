"""The faults of the soak: clients killed, connections cut, the server stopped, its log unwritable, bad requests."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.checked_channel import checked
from support.calls.wire import ask
from support.machine.command_line import clean_environment
from support.servers.cutting_proxy import CuttingProxy
from support.servers.server_process import ServerProcess

TESTS = Path(__file__).resolve().parents[1]
GENERATE = "/imp.v1.InferenceService/Generate"
N_BAD_ROUNDS = 25


class Faults:
    """The faults. Each is a method; they run in turn."""

    def __init__(self, server: ServerProcess, proxy: CuttingProxy, stopped_seconds: float) -> None:
        self._server = server
        self._proxy = proxy
        self._stop = threading.Event()
        self._stopped_seconds = stopped_seconds
        self.n_done: dict[str, int] = {}
        self._turn = 0

    @property
    def kinds(self) -> list[Callable[[], None]]:
        """The faults in the order of their turns."""
        return [self.client_killed, self.connections_cut, self.server_stopped, self.log_unwritable, self.bad_requests]

    @property
    def is_one_left(self) -> bool:
        """Whether some fault has not run yet."""
        return len(self.n_done) < len(self.kinds)

    def next(self) -> str:
        """Runs the next fault; returns its name."""
        fault = self.kinds[self._turn % len(self.kinds)]
        self._turn += 1
        fault()
        self.n_done[fault.__name__] = self.n_done.get(fault.__name__, 0) + 1
        return fault.__name__

    def client_killed(self) -> None:
        """Kills a client process with SIGKILL while it reads four streams."""
        victim = subprocess.Popen(
            [sys.executable, "-m", "soak.victim", self._server.address],
            cwd=TESTS,
            env={**clean_environment(self._server.folder), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )
        assert victim.stdout is not None  # for mypy: the process has a pipe
        with victim.stdout:
            assert victim.stdout.readline() == b"reading\n"
            victim.kill()
        victim.wait()

    def connections_cut(self) -> None:
        """Resets every connection through the proxy."""
        self._proxy.cut()

    def server_stopped(self) -> None:
        """Stops the server with SIGSTOP for a while."""
        self._server.signal(signal.SIGSTOP)
        self._stop.wait(self._stopped_seconds)
        self._server.signal(signal.SIGCONT)

    def log_unwritable(self) -> None:
        """Prevents the server's log from growing, as on a full disk, while bad requests would fill it."""
        with no_room(self._server):
            self.bad_requests()
            self._stop.wait(self._stopped_seconds)

    def bad_requests(self) -> None:
        """Sends a burst of invalid requests, each kind many times."""
        with grpc.insecure_channel(self._server.address) as raw:
            stub = InferenceServiceStub(checked(raw))
            malformed = checked(raw).unary_stream(GENERATE)
            for _ in range(N_BAD_ROUNDS):
                for call in (
                    lambda: list(stub.Generate(ask([10**9]))),
                    lambda: list(stub.Generate(ask("a", sampling=types_pb2.SamplingOptions(temperature=-1)))),
                    lambda: list(stub.Generate(ask("a", model="no such model"))),
                    lambda: list(stub.Generate(ask("a", constraint=types_pb2.Constraint(regex="(")))),
                    lambda: list(stub.Generate(pb.GenerateRequest())),
                    lambda: list(malformed(b"\xff\xff\xff")),
                    lambda: stub.Prefill(pb.PrefillRequest(session_id="none", text="a")),
                    lambda: stub.DecodeStep(pb.DecodeStepRequest()),
                    lambda: stub.Embed(pb.EmbedRequest(texts=["a"])),
                ):
                    refused(call)


def refused(call: Callable[[], object]) -> None:
    """Asserts that a call fails; the channel's checks judge its status."""
    try:
        call()
    except grpc.RpcError:
        return
    raise AssertionError("a bad request was answered")


@contextlib.contextmanager
def no_room(server: ServerProcess) -> Iterator[None]:
    """Prevents the server's files from growing during the block."""
    size = server.stderr_file.stat().st_size
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
