"""imp top: one snapshot, a line for each change, the live view, and the numbers of a real server."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import ErrorInfo
from rich.console import Console

from imp_service.cli.top.view import spark_line, view
from imp_service.pb.admin_pb2 import ListRequestsResponse, RequestState
from imp_service.pb.model_pb2 import Load, WatchLoadResponse
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.scripted_server import refuse, scripted_server
from support.servers.server_process import server_process


def load(running: int, *, draining: bool = False) -> Load:
    made = Load(
        time=Timestamp(seconds=1_000_010),
        running=running,
        waiting=3,
        waiting_tokens=900,
        sessions=2,
        kv_usage=0.5,
        cache_hit_rate=0.25,
        output_tokens_per_second=123.4,
        draft_tokens_per_second=40,
        accepted_draft_tokens_per_second=30,
        draining=draining,
    )
    made.silence.FromMilliseconds(2500)
    return made


REQUEST = RequestState(
    request_id="story-[bold]1",
    peer="ipv4:127.0.0.1:5",
    admit_time=Timestamp(seconds=1_000_008, nanos=500_000_000),
    running=True,
    prompt_tokens=7,
    output_tokens=40,
    unread_messages=1,
)


@pytest.fixture
def server():
    """A server that reports two loads and ends, with one request on the admin side. Also the requested intervals."""
    asked = []

    def watch(request, context):
        asked.append(request.min_interval.ToMilliseconds())
        yield WatchLoadResponse(load=load(1))
        yield WatchLoadResponse(load=load(2, draining=True))
        refuse(context, grpc.StatusCode.UNAVAILABLE, "stopping", ErrorInfo(reason="DRAINING", domain="imp.v1"))

    def requests(request, context):
        yield ListRequestsResponse(requests=[REQUEST])

    with scripted_server(WatchLoad=watch, ListRequests=requests) as address:
        yield address, asked


def test_one_snapshot_as_text(call, server):
    address, _ = server
    status, out, err = call("top", "--once", "--target", address, "--admin", address)
    assert (status, err) == (0, "")
    facts, requests = out.split("\n\n")
    width = len("no progress for")
    assert {line[:width].rstrip(): line[width:].removeprefix("  ") for line in facts.splitlines()} == {
        "state": "accepts calls",
        "running": "1",
        "waiting": "3 requests, 900 prompt tokens",
        "sessions": "2",
        "output": "123.4 tokens/s",
        "guesses": "40.0 tokens/s, 75 % right",
        "cache in use": "50 %",
        "cache hits": "25 % of prompt tokens",
        "no progress for": "2.5 s",
    }
    head, row = (" ".join(line.split()) for line in requests.splitlines())
    assert head == "request state age prompt output unread peer"
    assert row == "story-[bold]1 running 1.5 s 7 40 1 ipv4:127.0.0.1:5"


def test_one_snapshot_as_json(call, server):
    address, _ = server
    status, out, _ = call("top", "--once", "--json", "--target", address, "--admin", address)
    told, request = (json.loads(line) for line in out.splitlines())
    assert (status, told["running"], told["kv_usage"], told["silence"]) == (0, 1, 0.5, "2.500s")
    assert (request["request_id"], request["output_tokens"]) == ("story-[bold]1", 40)


def test_where_nobody_looks_each_change_is_a_line(call, server):
    address, asked = server
    status, out, err = call("top", "--target", address, "--interval", "250ms")
    assert asked == [250]
    first, second = out.splitlines()
    assert first == (
        "1970-01-12T13:46:50Z  running 1  waiting 3  sessions 2  123.4 tokens/s  cache 50 %  hits 25 %  silence 2.5 s"
    )
    assert second == first.replace("running 1", "running 2") + "  draining"
    assert (status, err) == (69, "imp: error: DRAINING: stopping (UNAVAILABLE)\n")


def test_the_picture_has_the_facts_and_the_requests():
    console = Console(width=100, height=30, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view(load(2, draining=True), [REQUEST], deque([10.0, 20.0]), "unix:///run/imp/imp.sock"))
    text = captured.get()
    for words in (
        "unix:///run/imp/imp.sock",
        "draining",
        "123.4 tokens/s  ▅█",
        "40.0 tokens/s, 75 % right",
        "50 %",
        "2.5 s",
        "story-[bold]1",
    ):
        assert words in text, words


def test_a_line_of_bars_has_its_highest_full():
    assert spark_line(deque([0.0, 4.0, 8.0])) == "▁▅█"
    assert spark_line(deque([0.0, 0.0])) == spark_line(deque()) == ""


# No token ends a text, so it does not finish before a person interrupts it.
ENDLESS = (
    *("-c", "16K", "--set", "model.overrides.untrained_context=true"),
    *("--set", "model.overrides.eos_token_ids=[]"),
)


@contextlib.contextmanager
def endless_call(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yields imp call in the middle of a text."""
    command = [
        sys.executable,
        "-m",
        "imp_service",
        "call",
        "generate",
        "Once",
        "--target",
        address,
        "--max-tokens",
        "16000",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=clean_environment(folder)
    )
    with process:
        try:
            assert process.stdout
            assert len(process.stdout.read(1)) == 1
            yield process
        finally:
            process.kill()


def test_top_shows_what_runs_and_ctrl_c_ends_it(call, tmp_path):
    with (
        server_process(tmp_path, *ENDLESS, settings=("listen.admin=127.0.0.1:0",)) as server,
        endless_call(server.address, tmp_path) as process,
    ):
        admin = server.wait_until_ready()["admin"]
        status, out, _ = call("top", "--once", "--json", "--target", server.address, "--admin", admin)
        load, request = (json.loads(line) for line in out.splitlines())
        assert (status, load["running"]) == (0, 1)
        assert (request["running"], request["prompt_tokens"]) == (True, 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS_AFTER)
        assert (process.returncode, err) == (130, b"")
