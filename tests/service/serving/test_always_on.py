"""The checks after every test: each fails for a test that breaks its invariant on purpose."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.machine.command_line import FOUND_IN

ROOT = Path(__file__).resolve().parents[3]

BREAKS = """
import dataclasses
import grpc
import pytest
from imp_service.generation import ModelRuntime
from imp_service.generation.output_stream import OutputStream
from imp_service.serving.refusal import Refusal
from support.servers import server_checks
from support.run.always_on import always_on
from support.calls.checked_channel import checked
from support.servers.served import serve
from support.servers.served_models import Canary, built_in
from support.calls.status_checker import SECRET
from support.calls.wire import ask

server_checks.REST_SECONDS = 0.3

@pytest.fixture
def served():
    with serve() as server:
        yield server

def test_good(served):
    list(served.inference.Generate(ask("a", 3)))

@pytest.fixture(scope="module")
def shared():
    with serve() as server:
        yield server

def test_g3_a_sequence_is_left_open(shared):
    engine = shared.state.model.client.engine
    shared.call(lambda: engine.open(999_999))
    shared.wait_until(lambda: engine.stats().sessions == 1, "open")

@pytest.fixture
def wrong():
    right = built_in()
    canary = Canary(right.canary.prompt_ids, (1, *right.canary.output_ids[1:]))
    with serve(model=dataclasses.replace(right, canary=canary)) as server:
        yield server

def test_g2_a_wrong_token(wrong):
    pass

def test_g5_an_unknown_status():
    def fail(request, context):
        raise KeyError(SECRET)
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(1)
    server = grpc.server(pool)
    handler = grpc.unary_unary_rpc_method_handler(fail)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(AssertionError):
            checked(channel).unary_unary("/a.B/C")(b"")
    server.stop(None).wait()
    pool.shutdown()

def test_g6_a_prompt_in_a_status(served, monkeypatch):
    def refuse(model, request, **how):
        raise Refusal("QUEUE_FULL", f"no room for {request.prompt}", {"bound": "scheduler.max_waiting"})
    monkeypatch.setattr(ModelRuntime, "plan", refuse)
    with pytest.raises(grpc.RpcError):
        list(served.inference.Generate(ask(SECRET)))

def test_g6_a_prompt_in_the_log(served):
    served.state.telemetry.log.warning("read", prompt=SECRET)

def test_g8_a_request_that_never_ended(served):
    served.call(lambda: served.state.telemetry.call("/imp.v1.InferenceService/Generate", "1", "", ""))

def test_rpc_2_a_chunk_with_a_wrong_number(served, monkeypatch):
    right = OutputStream.take
    def wrong(stream, max_tokens):
        chunk = right(stream, max_tokens)
        return dataclasses.replace(chunk, first_token=chunk.first_token + 1)
    monkeypatch.setattr(OutputStream, "take", wrong)
    with pytest.raises(AssertionError):
        list(served.inference.Generate(ask("a", 3)))
"""
# The message for each broken invariant.
FOUND = {
    "test_g3_a_sequence_is_left_open": r"G3: .*sessions=1",
    "test_g2_a_wrong_token": r"G2: the canary generated",
    "test_g5_an_unknown_status": r"StatusCode.UNKNOWN",
    "test_g6_a_prompt_in_a_status": r"tells \['xyzzy",
    "test_g6_a_prompt_in_the_log": r"G6: \['xyzzy-plugh-4711'\] in the log",
    "test_g8_a_request_that_never_ended": r"G8: .* 1.0 are active",
    "test_rpc_2_a_chunk_with_a_wrong_number": r"token 1, sent \[\]",
}


def test_hon_13_a_broken_invariant_fails_the_test_that_broke_it(tmp_path: Path) -> None:
    (tmp_path / "test_breaks.py").write_text(BREAKS)
    search = os.pathsep.join([str(FOUND_IN), str(ROOT / "tests")])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        "-rE",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    found = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path / "test_breaks.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(re.findall(r"^ERROR \S+::(\w+)", found.stdout, re.MULTILINE)) == FOUND.keys(), found.stdout
    assert [words for words in FOUND.values() if not re.search(words, found.stdout)] == [], found.stdout
