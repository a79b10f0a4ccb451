"""The log of imp serve: one line per request, no word of a prompt. A broken stderr does not stop the server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service.pb import inference_pb2 as pb
from support.calls.failed_calls import failed
from support.servers.served import ask, tokens_of
from support.servers.server_process import server_process

CANARY = "xylophone quartz"
N_CALLS = 60


@pytest.mark.long
def test_obs_5_g6_every_request_has_its_line_and_no_line_a_prompt(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("log.format=json", "log.max_lines_per_second=1000")) as server:
        with server.inference() as stub:
            for i in range(10):
                list(stub.Generate(ask(f"{CANARY} {i}", 3, request_id=f"good-{i}")))
            for i in range(10):
                bad = ask(f"{CANARY} {i}", 3, request_id=f"bad\n{i}\x1b[2J", model=f"no\r{CANARY}")
                assert failed(lambda bad=bad: list(stub.Generate(bad))).code == "INVALID_ARGUMENT"
            stub.GenerateUnary(pb.GenerateUnaryRequest(request=ask(CANARY, 2, request_id="unary")))
            stub.Prefill(pb.PrefillRequest(text=CANARY), metadata=(("imp-tenant", "blue"),))
        assert server.terminate() == 0
        text = server.stderr
    assert text.isascii() and all(line.isprintable() for line in text.splitlines())
    assert [word for word in CANARY.split() if word in text] == []
    lines = [json.loads(line) for line in text.splitlines()]
    calls = [line for line in lines if line["event"].startswith("call ")]
    good = [(line["id"], line["output_tokens"]) for line in calls if line["id"].startswith("good")]
    assert good == [(f"good-{i}", 3) for i in range(10)]
    assert sum(line.get("reason") == "FIELD_INVALID" for line in calls) == 10
    assert [line["method"].split("/")[1] for line in calls[20:]] == ["GenerateUnary", "Prefill"]
    assert (calls[-1]["tenant"], calls[-1]["code"], len(calls)) == ("blue", "OK", 22)


@contextlib.contextmanager
def broken_stderr(kind: str) -> Iterator[int]:
    """Yields a descriptor that accepts few writes or none."""
    if kind == "full disk":
        descriptors = [os.open("/dev/full", os.O_WRONLY)]
    else:
        read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
        descriptors = [write_end, read_end]
        if kind == "closed pipe":
            os.close(descriptors.pop())
    try:
        yield descriptors[0]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["full disk", "closed pipe", "pipe nobody reads"])
def test_y07_serving_goes_on_whatever_becomes_of_stderr(tmp_path: Path, kind: str) -> None:
    """The log exceeds a pipe's capacity. Every call is answered, and the server ends normally."""
    with broken_stderr(kind) as stderr, server_process(tmp_path, stderr=stderr) as server:
        with server.inference() as stub:
            for _ in range(N_CALLS):
                assert len(tokens_of(list(stub.Generate(ask("a", 3))))) == 3
            with pytest.raises(grpc.RpcError):
                list(stub.Generate(ask([99999])))
        assert server.terminate() == 0


@pytest.mark.long
def test_y08_nothing_gets_the_number_of_a_closed_stderr(tmp_path: Path) -> None:
    without = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    with server_process(tmp_path, inside=without) as server:
        with server.inference() as stub:
            list(stub.Generate(ask("a", 3)))
        assert [str(Path(f"/proc/{server.pid}/fd/{n}").readlink()) for n in range(3)] == ["/dev/null"] * 3
        assert server.terminate() == 0


@pytest.mark.long
def test_obs_5_lif_5_the_end_of_a_server_is_reported_step_by_step(tmp_path: Path) -> None:
    settings = ("drain.delay=10ms", "drain.grace=20s")
    with server_process(tmp_path, settings=settings) as server, server.inference() as stub:
        stream = stub.Generate(ask("Once upon a time", 100, stop={"max_tokens": 100, "ignore_eos": True}))
        next(stream)
        server.signal(signal.SIGTERM)
        (draining,) = server.wait_for_lines("draining", 1)
        assert len(tokens_of(list(stream))) > 0
        assert server.wait_for_end() == 0
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    told = [line["event"] for line in lines if not line["event"].startswith("call ")]
    assert told[-4:] == ["signal", "draining", "drained", "stopped"]
    assert [line["name"] for line in lines if line["event"] == "signal"] == ["SIGTERM"]
    assert (draining["delay"], draining["grace"], draining["requests"]) == (0.01, 20.0, 1)
    assert [line["ended_by_grace"] for line in lines if line["event"] == "drained"] == [0]


@pytest.mark.long
@pytest.mark.parametrize(("level", "n_lines"), [("info", 0), ("debug", 3)])
def test_obs_5_health_checks_are_reported_at_debug_alone(tmp_path: Path, level: str, n_lines: int) -> None:
    """A kubelet sends a check every few seconds, and a watching client may leave at any time."""
    with server_process(tmp_path, settings=(f"log.level={level}",)) as server:
        with server.connection() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for _ in range(2):
                health.Check(health_pb2.HealthCheckRequest())
            watch = health.Watch(health_pb2.HealthCheckRequest())
            next(watch)
            watch.cancel()
        assert server.terminate() == 0
    calls = [line for event in ("call finished", "call cancelled") for line in server.log_lines(event)]
    assert [line["level"] for line in calls] == ["debug"] * n_lines
    assert {line["method"].rpartition("/")[0] for line in calls} <= {"grpc.health.v1.Health"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("speculation.drafters=[]",), "none"),
        ((), "ngram: costs nothing; grammar: what a constraint forces"),
    ],
)
def test_spc_29_the_start_tells_what_guesses(tmp_path: Path, settings: tuple[str, ...], told: str) -> None:
    with server_process(tmp_path, settings=settings) as server:
        server.wait_until_ready()
        assert server.terminate() == 0
    assert [line["drafters"] for line in server.log_lines("speculation")] == [told]
