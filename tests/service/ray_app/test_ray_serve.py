"""imp behind Ray Serve, started as its users start it: what comes through Ray's proxy is what imp says."""

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
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

import imp_service
from imp_service.client import CallFailure, failure_of
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from support.checked_channel import checked
from support.command_line import clean_environment
from support.patience import HANGS_AFTER
from support.served import ask, tokens_of
from support.served_models import built_in

pytest.importorskip("ray", reason="Ray is not installed here: pip install '.[ray]'")

ROOT = Path(__file__).resolve().parents[3]
SERVE = Path(sys.executable).with_name("serve")
# Ray starts its own daemons, and a Python process for each replica and proxy.
RAY_HANGS_AFTER = 3 * HANGS_AFTER
SESSION_METHODS = ("Prefill", "DecodeStep", "DecodeStream", "ForkSession", "TruncateSession", "ReleaseSession")

pytestmark = pytest.mark.timeout(400)


def free_ports(n: int) -> list[int]:
    """Below those that systems give out and above those of Ray's workers: between here and there it starts much."""
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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of Ray's gRPC proxy, with conf/ray/serve.yaml behind it on ports of its own."""
    folder = tmp_path_factory.mktemp("ray")
    config = yaml.safe_load((ROOT / "conf" / "ray" / "serve.yaml").read_text())
    config["grpc_options"]["port"], config["http_options"]["port"] = free_ports(2)
    config["applications"][0]["args"]["kv.bytes"] = "8MiB"
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    environment = {**clean_environment(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(SERVE), "run", "serve.yaml"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    target = f"127.0.0.1:{config['grpc_options']['port']}"
    try:
        _wait_until_served(target, process, folder / "log.txt")
        yield target
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()


def _wait_until_served(target: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + RAY_HANGS_AFTER
    descriptor = os.pidfd_open(process.pid)
    try:
        while True:
            with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
                with contextlib.suppress(grpc.RpcError):
                    stub.Tokenize(tokenizer_pb2.TokenizeRequest(texts=["a"]), timeout=5)
                    return
            # Between two looks, its end is waited for.
            ended, _, _ = select.select([descriptor], [], [], 0.5)
            assert not ended and time.monotonic() < give_up, log.read_text()[-4000:]
    finally:
        os.close(descriptor)


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as raw:
        yield checked(raw)


@pytest.fixture
def inference(channel: grpc.Channel) -> inference_pb2_grpc.InferenceServiceStub:
    return inference_pb2_grpc.InferenceServiceStub(channel)


def refused(call: Any) -> CallFailure:
    with pytest.raises(grpc.RpcError) as raised:
        for _ in call():
            pass
    return failure_of(raised.value)


def instance(call: grpc.Call) -> str:
    return str(dict(call.initial_metadata())["imp-instance-id"])


def test_rpc_36_generations_are_those_of_the_model(inference: inference_pb2_grpc.InferenceServiceStub):
    canary = built_in().canary
    assert canary is not None  # narrows
    request = ask(list(canary.prompt_ids), 24)
    stream = inference.Generate(request)
    assert tokens_of(list(stream)) == list(canary.output_ids[:24])
    assert {"imp-request-id", "imp-instance-id"} <= dict(stream.initial_metadata()).keys()
    assert "imp-instance-id" not in dict(stream.trailing_metadata())
    reply, call = inference.GenerateUnary.with_call(pb.GenerateUnaryRequest(request=request))
    assert [list(sequence.output.token_ids) for sequence in reply.sequences] == [list(canary.output_ids[:24])]
    assert {"imp-request-id", "imp-instance-id"} <= dict(call.initial_metadata()).keys()


def test_rpc_36_every_session_method_is_refused_and_says_why(inference: inference_pb2_grpc.InferenceServiceStub):
    for name in SESSION_METHODS:
        method = pb.DESCRIPTOR.services_by_name["InferenceService"].methods_by_name[name]
        request = getattr(pb, method.input_type.name)()
        if method.client_streaming:
            failure = refused(lambda: inference.DecodeStream(iter([request])))  # noqa: B023
        else:
            failure = refused(lambda: [getattr(inference, name)(request)])  # noqa: B023
        found = (failure.code, failure.reason, failure.metadata)
        assert found == ("UNIMPLEMENTED", "NOT_SUPPORTED_BY_HOST", {"feature": name})
        assert "a session needs an instance of its own" in failure.text
    failure = refused(lambda: inference.Generate(pb.GenerateRequest(session_id="s")))
    assert (failure.reason, failure.metadata) == ("NOT_SUPPORTED_BY_HOST", {"feature": "session_id"})


def test_rpc_36_every_read_is_served(channel: grpc.Channel):
    tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    model = model_pb2_grpc.ModelServiceStub(channel)
    ids = list(tokenizer.Tokenize(tokenizer_pb2.TokenizeRequest(texts=["Once upon"])).results[0].token_ids)
    request = tokenizer_pb2.DetokenizeRequest()
    request.token_ids.add().ids.extend(ids)
    assert list(tokenizer.Detokenize(request).texts) == ["Once upon"]
    chat = tokenizer_pb2.ApplyChatTemplateRequest()
    chat.chat.messages.add(role="user", content="Hello")
    assert "Hello" in tokenizer.ApplyChatTemplate(chat).text
    assert len(b"".join(part.data for part in tokenizer.GetTokenizer(tokenizer_pb2.GetTokenizerRequest()))) > 10_000
    assert model.GetModelInfo(model_pb2.GetModelInfoRequest()).vocab_size == 2048
    assert model.GetServerInfo(model_pb2.GetServerInfoRequest()).version == imp_service.__version__
    assert model.GetLoad(model_pb2.GetLoadRequest()).load.running == 0
    watch = model.WatchLoad(model_pb2.WatchLoadRequest())
    assert next(watch).load.running == 0
    watch.cancel()


def test_rpc_36_failures_keep_their_details(inference: inference_pb2_grpc.InferenceServiceStub):
    """Of streams and of single replies; Ray itself would send no more than a code and a line."""
    bad = ask([99999], 4)
    streamed = refused(lambda: inference.Generate(bad))
    single = refused(lambda: [inference.GenerateUnary(pb.GenerateUnaryRequest(request=bad))])
    for failure, path in ((streamed, "token_ids.ids[0]"), (single, "request.token_ids.ids[0]")):
        assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert [violation.path for violation in failure.violations] == [path]
    failure = refused(lambda: [inference.Embed(pb.EmbedRequest(texts=["a"]))])
    assert (failure.code, failure.metadata) == ("UNIMPLEMENTED", {"feature": "Embed"})


def test_rpc_36_calls_are_spread_over_replicas_with_engines_of_their_own(channel: grpc.Channel):
    tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    seen = set()
    for _ in range(200):
        _, call = tokenizer.Tokenize.with_call(tokenizer_pb2.TokenizeRequest(texts=["a"]))
        seen.add(instance(call))
    assert len(seen) == 2


def test_rpc_36_a_client_that_leaves_frees_its_sequence(
    channel: grpc.Channel, inference: inference_pb2_grpc.InferenceServiceStub
):
    stream = inference.Generate(ask("a", 400))
    next(stream), next(stream)
    stream.cancel()
    model = model_pb2_grpc.ModelServiceStub(channel)
    give_up = time.monotonic() + 30
    at_rest: set[str] = set()
    while len(at_rest) < 2:
        reply, call = model.GetLoad.with_call(model_pb2.GetLoadRequest())
        (at_rest.add if reply.load.running == 0 else at_rest.discard)(instance(call))
        assert time.monotonic() < give_up
