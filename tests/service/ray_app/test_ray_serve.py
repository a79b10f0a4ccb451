"""imp behind Ray Serve: Ray's proxy passes on imp's replies unchanged."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

import imp_service
from imp_service.client.failure import CallFailure, failure_of
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from support.run.patience import HANGS_AFTER
from support.servers.ray_serve import replica_processes
from support.servers.served import ask, tokens_of
from support.servers.served_models import built_in

SESSION_METHODS = ("Prefill", "DecodeStep", "DecodeStream", "ForkSession", "TruncateSession", "ReleaseSession")


def refused(call: Any) -> CallFailure:
    with pytest.raises(grpc.RpcError) as raised:
        for _ in call():
            pass
    return failure_of(raised.value)


def instance(call: grpc.Call) -> str:
    return str(dict(call.initial_metadata())["imp-instance-id"])


def _answered(tokenizer: tokenizer_pb2_grpc.TokenizerServiceStub, give_up: float) -> str:
    """Returns the instance that answers a call. Repeats the call if its replica died."""
    while True:
        try:
            _, call = tokenizer.Tokenize.with_call(tokenizer_pb2.TokenizeRequest(texts=["a"]), timeout=HANGS_AFTER)
            return instance(call)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            assert time.monotonic() < give_up


def _instances(tokenizer: tokenizer_pb2_grpc.TokenizerServiceStub, n: int) -> set[str]:
    """Calls until `n` instances have answered, and returns them."""
    seen: set[str] = set()
    give_up = time.monotonic() + HANGS_AFTER
    while len(seen) < n:
        seen.add(_answered(tokenizer, give_up))
    return seen


@pytest.mark.long
def test_rpc_36_generations_are_those_of_the_model(inference: inference_pb2_grpc.InferenceServiceStub):
    canary = built_in().canary
    assert canary is not None  # narrows the type
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
    """This holds for streams and unary replies. Ray itself would send only a code and a message."""
    bad = ask([99999], 4)
    streamed = refused(lambda: inference.Generate(bad))
    single = refused(lambda: [inference.GenerateUnary(pb.GenerateUnaryRequest(request=bad))])
    for failure, path in ((streamed, "token_ids.ids[0]"), (single, "request.token_ids.ids[0]")):
        assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert [violation.path for violation in failure.violations] == [path]
    failure = refused(lambda: [inference.Embed(pb.EmbedRequest(texts=["a"]))])
    assert (failure.code, failure.metadata) == ("UNIMPLEMENTED", {"feature": "embeddings"})


def test_rpc_36_calls_are_spread_over_replicas_with_engines_of_their_own(channel: grpc.Channel):
    tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    give_up = time.monotonic() + HANGS_AFTER
    seen: set[str] = set()
    while len(seen) < 2:  # a replica that has just started gets no call for a while
        _, call = tokenizer.Tokenize.with_call(tokenizer_pb2.TokenizeRequest(texts=["a"]))
        seen.add(instance(call))
        assert time.monotonic() < give_up


def test_rpc_36_a_client_that_leaves_frees_its_sequence(
    channel: grpc.Channel, inference: inference_pb2_grpc.InferenceServiceStub
):
    stream = inference.Generate(ask("a", 400))
    next(stream), next(stream)
    stream.cancel()
    model = model_pb2_grpc.ModelServiceStub(channel)
    give_up = time.monotonic() + HANGS_AFTER
    at_rest: set[str] = set()
    while len(at_rest) < 2:
        reply, call = model.GetLoad.with_call(model_pb2.GetLoadRequest())
        (at_rest.add if reply.load.running == 0 else at_rest.discard)(instance(call))
        assert time.monotonic() < give_up


def test_gwy_1_a_killed_replica_fails_no_call_that_is_repeated_and_is_replaced(ray_home: Path, ray_address: str):
    """Ray reports a killed replica's calls as UNAVAILABLE in time. A repeated call reaches the other replica."""
    with grpc.insecure_channel(ray_address) as raw:
        tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(raw)
        before = _instances(tokenizer, 2)
        killed = replica_processes(ray_home)[0]
        os.kill(killed, signal.SIGKILL)
        seen: set[str] = set()
        give_up = time.monotonic() + HANGS_AFTER
        while len(seen - before) < 1 or len(seen) < 2:
            seen.add(_answered(tokenizer, give_up))
        assert len(seen & before) == 1
        assert killed not in replica_processes(ray_home)
