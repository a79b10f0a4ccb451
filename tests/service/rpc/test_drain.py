"""Draining: which work goes on, which is refused or cut off, and that each call has one ending."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import imp_service
from imp_service.api.errors import Error
from imp_service.pb import inference_pb2 as pb
from imp_service.serving.lifecycle import Phase
from imp_service.serving.refusal import Refusal
from support.calls.raw_calls import INFERENCE, call
from support.calls.status_details import read_details
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import scripted

GENERATE = f"/{INFERENCE}/Generate"


# The engine stops before it evaluates this token, until the gate opens.
HANGS = 310


class Gate:
    """Stops the engine when a sequence comes to HANGS."""

    def __init__(self) -> None:
        self.hung, self._tell_hung = os.pipe()
        self._gate, self._open = os.pipe()

    @property
    def script(self) -> dict[str, int]:
        return {"hanging_token": HANGS, "hung_fd": self._tell_hung, "gate_fd": self._gate}

    def wait_until_hung(self) -> None:
        assert os.read(self.hung, 1)

    def open(self) -> None:
        os.write(self._open, b"x")

    def close(self) -> None:
        for descriptor in (self.hung, self._tell_hung, self._gate, self._open):
            os.close(descriptor)


@pytest.fixture
def gate() -> Iterator[Gate]:
    it = Gate()
    yield it
    it.close()


@pytest.fixture
def served(gate: Gate) -> Iterator[Served]:
    with serve("drain.delay=10s", "drain.grace=30s", model=scripted(script=gate.script)) as it:
        try:
            with it.frozen():
                yield it
        finally:
            gate.open()


def hung_stream(
    served: Served, gate: Gate, request: pb.GenerateRequest | None = None, metadata: Any = ()
) -> tuple[Any, list[pb.GenerateResponse]]:
    """Returns a stream that has received all tokens up to and including HANGS, and that then hangs."""
    stream = served.inference.Generate(request or ask([300], 20), metadata=metadata)
    messages: list[pb.GenerateResponse] = []
    while len(tokens_of(messages)) < HANGS - 300:
        messages.append(next(stream))
    gate.wait_until_hung()
    return stream, messages


def begin(served: Served, grace: float | None = None) -> None:
    served.call(lambda: served.state.drain.begin(grace))


def refused_with(served: Served) -> tuple[str, str, int | None]:
    with served.connection() as channel:
        ended = call(channel, GENERATE, ask([400], 1).SerializeToString())
    return ended.code, ended.reason, ended.details.pushback_ms


def cut_short(stream: Any, messages: list[pb.GenerateResponse]) -> dict[str, str]:
    """Returns the error metadata of a stream that a drain has cut off."""
    with pytest.raises(grpc.RpcError) as cut:
        messages.extend(stream)
    details = read_details(cut.value.trailing_metadata())
    assert (cut.value.code().name, details.reason, details.pushback_ms) == DRAINING
    return details.metadata


DRAINING = ("UNAVAILABLE", "DRAINING", 1)
TOKENIZE = "/imp.v1.TokenizerService/Tokenize"


def test_lif_5_l03_calls_are_taken_for_the_delay_then_refused_while_streams_go_on(served: Served, gate: Gate) -> None:
    stream, messages = hung_stream(served, gate)
    begin(served)
    assert served.state.lifecycle.phase is Phase.LEAVING
    with served.connection() as channel:
        assert call(channel, TOKENIZE).reason == "FIELD_INVALID"
        served.jump(10)
        served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
        assert refused_with(served) == DRAINING
        for method in (f"/{INFERENCE}/Prefill", f"/{INFERENCE}/DecodeStep", TOKENIZE):
            ended = call(channel, method)
            assert (ended.code, ended.reason) == DRAINING[:2], method
    assert not served.state.drain.is_drained
    gate.open()
    messages += list(stream)
    assert tokens_of(messages) == list(range(301, 321))
    assert stream.code() is grpc.StatusCode.OK
    served.wait_until(lambda: served.state.drain.is_drained, "drained")


@pytest.mark.parametrize("timeout", [None, HANGS_AFTER])
def test_lif_5_w29_a_client_that_retries_learns_that_its_server_drains(
    served: Served, gate: Gate, timeout: float | None
) -> None:
    """gRPC for Python 1.76 to 1.85 waits for ever, even beyond a deadline, after a pushback of 0."""
    hung_stream(served, gate)
    begin(served)
    served.jump(10)
    served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
    with imp_service.connect(served.address) as model, pytest.raises(Error) as refused:
        model.generate([300], max_tokens=1, timeout=timeout).result()
    assert refused.value.reason == "DRAINING"
    limit = [] if timeout is None else ["--deadline", f"{timeout:.0f}s"]
    command = [sys.executable, "-m", "imp_service", "call", "Once", "--target", served.address, *limit]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER)
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.startswith("imp: error: DRAINING: ")


def test_l04_streams_that_outlast_the_grace_are_cut_with_what_they_have_sent(served: Served, gate: Gate) -> None:
    stream, messages = hung_stream(served, gate)
    begin(served)
    served.jump(10)
    served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
    served.jump(30)
    assert cut_short(stream, messages) == {"tokens_emitted": "10"}
    assert tokens_of(messages) == list(range(301, 311))
    served.wait_until(lambda: served.state.drain.is_drained, "drained")
    gate.open()
    served.wait_for_rest()


# What a caller says that goes on with another server.
RESUMES = (("imp-resumes", "1"),)


def test_rsm_8_a_drain_does_not_wait_for_streams_that_go_on_elsewhere(served: Served, gate: Gate) -> None:
    stream, messages = hung_stream(served, gate, metadata=RESUMES)
    assert messages[0].started.HasField("origin")
    begin(served)
    served.jump(9)
    assert served.state.calls.n_requests == 1
    served.jump(1)
    assert cut_short(stream, messages) == {"tokens_emitted": "10"}
    served.wait_until(lambda: served.state.drain.is_drained, "drained")
    gate.open()
    served.wait_for_rest()


def test_rsm_8_a_stream_that_no_server_can_go_on_with_keeps_the_grace(served: Served, gate: Gate) -> None:
    with served.connection() as channel:
        request = pb.PrefillRequest(session_id="s", position=0, step={"sample": False})
        request.token_ids.ids.append(300)
        assert call(channel, f"/{INFERENCE}/Prefill", request.SerializeToString()).code == "OK"
    continued = pb.GenerateRequest(session_id="s", stop={"max_tokens": 20})
    stream, messages = hung_stream(served, gate, continued, RESUMES)
    assert not messages[0].started.HasField("origin")
    begin(served)
    served.jump(10)
    served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
    assert served.state.calls.n_requests == 1
    gate.open()
    messages += list(stream)
    assert tokens_of(messages) == list(range(301, 321))


def test_lif_6_l05_a_drain_is_taken_back(served: Served) -> None:
    served.call(served.state.drain.resume)
    assert served.state.lifecycle.phase is Phase.SERVING
    for jump in (0, 10):
        begin(served)
        served.jump(jump)
        served.call(served.state.drain.resume)
        assert served.state.lifecycle.phase is Phase.SERVING
        served.jump(60)
        assert refused_with(served)[0] == "OK"
    assert not served.state.drain.is_drained


def test_l05_a_second_drain_joins_the_first_and_can_only_shorten_it(served: Served, gate: Gate) -> None:
    stream, messages = hung_stream(served, gate)
    begin(served)
    begin(served, grace=3600)
    served.jump(10)
    served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
    begin(served, grace=5)
    served.jump(5)
    assert cut_short(stream, messages) == {"tokens_emitted": "10"}
    gate.open()


def test_l05_a_second_drain_does_not_lengthen_the_first(served: Served, gate: Gate) -> None:
    """It lengthens neither the delay nor the grace period."""
    stream, messages = hung_stream(served, gate)
    begin(served, grace=20)
    begin(served, grace=3600)
    served.jump(10)
    served.wait_until(lambda: served.state.lifecycle.phase is Phase.DRAINING, "draining")
    begin(served, grace=3600)
    served.jump(20)
    assert cut_short(stream, messages) == {"tokens_emitted": "10"}
    gate.open()


def test_l05_a_final_drain_is_not_taken_back(served: Served) -> None:
    served.call(lambda: served.state.drain.begin(is_final=True))
    with pytest.raises(Refusal, match="DRAINING"):
        served.call(served.state.drain.resume)


def test_lif_5_idle_sessions_and_watchers_do_not_hold_a_drain(served: Served) -> None:
    with served.connection() as channel:
        request = pb.PrefillRequest()
        request.token_ids.ids.extend((300, 301))
        opened = call(channel, f"/{INFERENCE}/Prefill", request.SerializeToString())
        assert opened.code == "OK", opened
        watcher = channel.stream_stream("/grpc.health.v1.Health/Watch")(iter((b"",)))
        next(watcher)
        begin(served, grace=3600)
        served.jump(10)
        served.wait_until(lambda: served.state.drain.is_drained, "drained")


@pytest.mark.long
def test_lif_5_l03_every_stream_of_a_drain_under_load_ends_with_finished_or_draining() -> None:
    """Drains begin at arbitrary moments. The checked channel fails if a stream ends in another way."""
    endings: set[str] = set()
    with serve() as served:
        for n_messages, grace in ((0, 0.0), (1, 0.02), (2, 0.002), (5, 0.005)):
            runners = [threading.Thread(target=_run_stream, args=(served, i, endings)) for i in range(7)]
            first = served.inference.Generate(ask([300], 500))
            for runner in runners:
                runner.start()
            for _ in range(n_messages):
                next(first)
            begin(served, grace)
            served.run(served.state.drain.wait())
            for runner in runners:
                runner.join(HANGS_AFTER)
                assert not runner.is_alive()
            _read(first, endings)
            served.wait_for_rest()
            served.call(served.state.drain.resume)
    assert endings <= {"OK", "DRAINING"} and "DRAINING" in endings


def _run_stream(served: Served, i: int, endings: set[str]) -> None:
    _read(served.inference.Generate(ask([300 + i], 5 * 2**i)), endings)


def _read(stream: Any, endings: set[str]) -> None:
    try:
        list(stream)
        endings.add("OK")
    except grpc.RpcError as error:
        endings.add(read_details(error.trailing_metadata()).reason)
