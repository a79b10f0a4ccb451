"""Measures resident memory: of a stream that nobody reads, of a session, and of the HTTP listener."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc

from compare.front_end.engine_process import EngineProcess, served_engine
from compare.front_end.figure import Figure, both
from compare.front_end.http_streams import read_http_streams, stream_request, unread_socket
from compare.front_end.streams import read_streams, request
from imp_service.core.bench.report import Spread
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, types_pb2
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.endings import SMALL_WINDOW
from support.machine.process_numbers import ProcessNumbers
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

# Seconds until each stream has filled its buffers.
PAUSE_SECONDS = 1.0
N_TOKENS = 8000
# Unread streams are paused at once and stay paused.
UNREAD_STAY = (
    "scheduler.max_running=512",
    "scheduler.step_tokens=512",
    "slow_client.bytes=1KiB",
    "slow_client.timeout=1h",
)
# Opens a number of streams, and closes them at the end of the block.
Open = Callable[[EngineProcess, int, ExitStack], None]


def memory(n_streams: int, n_sessions: int, reps: int) -> Iterator[Figure]:
    """Measures the memory that an unread stream and a session add to the server."""
    over_grpc, over_http, sessions = [], [], []
    for _ in range(reps):
        over_grpc.append(_of_unread(_unread_grpc, n_streams))
        over_http.append(_of_unread(_unread_http, n_streams))
        with served_engine("script") as server:
            open_sessions(server.grpc, 200)
            before = ProcessNumbers.of(server.pid).resident_bytes
            open_sessions(server.grpc, n_sessions)
            after = ProcessNumbers.of(server.pid).resident_bytes
            sessions.append((after - before) / n_sessions / 1024)
    name = f"memory of an idle stream, of {n_streams} that nobody reads"
    yield from both(name, "KiB", over_grpc, over_http, "at most 1.2")
    yield Figure(f"memory of a session beside its blocks, of {n_sessions}", "KiB", Spread.of(sessions))


def _of_unread(open_streams: Open, n_streams: int) -> float:
    """Returns KiB per stream."""
    with served_engine("script", UNREAD_STAY) as server:
        with ExitStack() as held:
            _open_all(open_streams, server, 10, held)
        with ExitStack() as held:
            before = ProcessNumbers.of(server.pid).resident_bytes
            _open_all(open_streams, server, n_streams, held)
            after = ProcessNumbers.of(server.pid).resident_bytes
    return (after - before) / n_streams / 1024


def _open_all(open_streams: Open, server: EngineProcess, n_streams: int, held: ExitStack) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        load = model_pb2_grpc.ModelServiceStub(channel)

        def n_running() -> int:
            return int(load.GetLoad(model_pb2.GetLoadRequest()).load.running)

        wait_for(lambda: n_running() == 0)
        open_streams(server, n_streams, held)
        wait_for(lambda: n_running() == n_streams)
        threading.Event().wait(PAUSE_SECONDS)


def _unread_grpc(server: EngineProcess, n_streams: int, held: ExitStack) -> None:
    """Opens unread gRPC streams on one connection."""
    channel = held.enter_context(grpc.insecure_channel(server.grpc, SMALL_WINDOW))
    stub = InferenceServiceStub(channel)
    for _ in range(n_streams):
        held.callback(stub.Generate(request(N_TOKENS, 300, max_chunk_tokens=1)).cancel)


def _unread_http(server: EngineProcess, n_streams: int, held: ExitStack) -> None:
    """Opens unread HTTP/1.1 streams, each on its own connection."""
    for _ in range(n_streams):
        held.enter_context(unread_socket(server.http, N_TOKENS))


def open_sessions(address: str, n_sessions: int) -> float:
    """Opens sessions with a few tokens each and leaves them open. Returns the time before the last one."""
    with grpc.insecure_channel(address) as channel:
        stub = InferenceServiceStub(channel)
        for i in range(n_sessions):
            before = time.monotonic()
            stub.Prefill(pb.PrefillRequest(token_ids=types_pb2.TokenIds(ids=[300 + i % 1000, 400, 500])))
    return before


def resident_memory(reps: int) -> Iterator[Figure]:
    """Measures `imp serve` with the built-in model after generations: over gRPC alone, and also over HTTP."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(reps):
        for has_door, values in found.items():
            words = ("--http", "127.0.0.1:0" if has_door else "off")
            with (
                tempfile.TemporaryDirectory() as folder,
                server_process(Path(folder), *words, is_traced=False) as server,
            ):
                facts = server.wait_until_ready()
                for _ in range(4):
                    read_streams(server.address, [request(64, 300 + i) for i in range(8)])
                    if has_door:
                        read_http_streams(facts["http"][0], [stream_request(64, 300 + i) for i in range(8)])
                values.append(ProcessNumbers.of(server.pid).resident_bytes / 1024**2)
    yield Figure("resident memory, without HTTP", "MiB", Spread.of(found[False]))
    added = [used - without for used, without in zip(found[True], found[False], strict=True)]
    yield Figure("resident memory that HTTP adds, used", "MiB", Spread.of(added), "at most 20")


def wait_for(holds: Callable[[], bool]) -> None:
    """Repeats a call until the condition holds."""
    give_up = time.monotonic() + HANGS_AFTER
    while not holds():
        if time.monotonic() > give_up:
            raise RuntimeError("never came to hold")
