"""VllmEngine's other methods: replies, missing methods, roles, and the setting that enables it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import vllm_engine_pb2 as vllm
from tokenizers import Tokenizer

import imp_service
from imp_service.config import ConfigError, read_settings
from imp_service.pb import model_pb2, model_pb2_grpc
from imp_service.rpc.vllm.engine import write_load
from imp_service.serving.lifecycle import Phase
from imp_service.serving.utilization import Utilization
from support.calls.raw_calls import Metadata, call
from support.calls.vllm_calls import COMPAT, ENGINE, SERVICE, asking, stub
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, serve
from support.servers.served_models import ENDLESS, scripted

READS = {"GetModelInfo", "GetServerInfo", "GetLoads", "GetTokenizer"}
RUNS = {"Generate", "Abort"}
PROBE = {"HealthCheck"}
LEFT_OUT = {"Embed", "FlushCache", "StartProfile", "StopProfile", "SubscribeKvEvents"}
PACKAGE = "smg_grpc_proto"


def path_of(method: str) -> str:
    return f"/{SERVICE}/{method}"


def content_of(method: str) -> bytes:
    """Returns a request that its method accepts."""
    if method == "Generate":
        return asking([300], max_tokens=1).SerializeToString()
    return GetMessageClass(ENGINE.methods_by_name[method].input_type)().SerializeToString()


def test_gwy_3_health_follows_the_phase(served: Served) -> None:
    lifecycle = served.state.lifecycle
    found = {}
    for phase in (Phase.SERVING, Phase.LEAVING, Phase.DRAINING, Phase.SERVING):
        served.call(lambda phase=phase: lifecycle.become(phase))
        reply = stub(served).HealthCheck(vllm.HealthCheckRequest())
        found[reply.message] = reply.healthy
    assert found == {"serving": True, "leaving": False, "draining": False}
    # The standard health protocol knows the service too.
    check = health_pb2.HealthCheckRequest(service=SERVICE).SerializeToString()
    with grpc.insecure_channel(served.address) as channel:
        reply = call(channel, "/grpc.health.v1.Health/Check", check)
    assert health_pb2.HealthCheckResponse.FromString(reply.replies[0]).status == health_pb2.HealthCheckResponse.SERVING


def test_gwy_3_the_model_is_that_of_imp(served: Served) -> None:
    channel = served.channel()
    theirs = stub(served).GetModelInfo(vllm.GetModelInfoRequest())
    ours = model_pb2_grpc.ModelServiceStub(channel).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert (theirs.served_model_name, theirs.model_type) == ("imp-demo", ours.architecture)
    assert (theirs.vocab_size, theirs.max_context_length) == (ours.vocab_size, ours.max_context_tokens)
    assert theirs.max_req_input_len == ours.max_context_tokens
    assert list(theirs.eos_token_ids) == list(ours.eos_token_ids)
    assert theirs.bos_token_id == ours.bos_token_id
    assert theirs.is_generation and not theirs.supports_vision
    defaults = json.loads(theirs.default_sampling_params_json)
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    assert defaults == pytest.approx({name: getattr(ours.default_sampling, name) for name in names})


def test_gwy_3_the_server_says_how_large_and_how_busy_it_is() -> None:
    with gate() as held, serve(COMPAT, model=held.model()) as served:
        engine = stub(served)
        running = engine.Generate(asking([HELD - 2] * 40, stream=True))
        next(running)
        held.wait()
        info = engine.GetServerInfo(vllm.GetServerInfoRequest())
        settings = served.state.settings
        assert (info.active_requests, info.is_paused, info.data_parallel_size) == (1, False, 1)
        assert (info.block_size, info.max_num_seqs) == (settings.kv.block_tokens, settings.scheduler.max_running)
        assert 0 <= info.uptime_seconds < 3600
        assert info.constrained_decoding_start == "first_token"
        reply = engine.GetLoads(vllm.GetLoadsRequest())
        (load,) = reply.loads
        assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (1, 0, 1)
        assert load.num_used_tokens == round(load.token_usage * load.max_total_num_tokens)
        assert load.num_used_tokens > 0
        assert load.utilization == pytest.approx(1 / load.max_running_requests)
        assert abs(datetime.fromisoformat(reply.timestamp).timestamp() - served.thread.clock.wall()) < 60
        assert reply.version == imp_service.__version__
        assert list(engine.GetLoads(vllm.GetLoadsRequest(dp_rank=0)).loads)
        assert not list(engine.GetLoads(vllm.GetLoadsRequest(dp_rank=1)).loads)
        running.cancel()
        held.open(ALL_STEPS)
        served.wait_for_rest()
        (load,) = engine.GetLoads(vllm.GetLoadsRequest()).loads
        assert (load.num_running_reqs, load.num_used_tokens) == (0, 0)


def test_gwy_3_the_load_counts_tokens_of_blocks_and_of_waiting_prompts(served: Served) -> None:
    (load,) = stub(served).GetLoads(vllm.GetLoadsRequest()).loads
    assert load.max_total_num_tokens == served.n_blocks * served.state.settings.kv.block_tokens > 1000
    waiting = write_load(Utilization(0.0, running=1, waiting=2, waiting_tokens=70), served.state)
    assert (waiting.num_waiting_reqs, waiting.num_total_reqs, waiting.num_waiting_uncached_tokens) == (2, 3, 70)


def test_gwy_3_the_tokenizer_can_be_built_elsewhere(served: Served) -> None:
    *before, last = stub(served).GetTokenizer(common_pb2.GetTokenizerRequest())
    data = b"".join(piece.data for piece in (*before, last))
    assert last.sha256 == hashlib.sha256(data).hexdigest()
    assert not any(piece.sha256 for piece in before)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        library = Tokenizer.from_str(archive.read("tokenizer.json").decode())
        assert archive.read("chat_template.jinja")
    text = "Once upon a time"
    assert library.encode(text).ids == served.state.model.tokenizer.encode(text)


def codes_of(served: Served, metadata: Metadata = ()) -> dict[str, set[str]]:
    """Calls each method, and returns the methods by status code."""
    found: dict[str, set[str]] = {}
    with grpc.insecure_channel(served.address) as channel:
        for method in ENGINE.methods:
            ended = call(channel, path_of(method.name), content_of(method.name), metadata)
            found.setdefault(ended.code, set()).add(method.name)
    return found


def test_gwy_3_what_is_left_out_is_unimplemented(served: Served) -> None:
    assert codes_of(served) == {"OK": READS | RUNS | PROBE, "UNIMPLEMENTED": LEFT_OUT}


def test_gwy_3_metrics_and_reflection_know_the_service(served: Served) -> None:
    list(stub(served).Generate(asking([300], max_tokens=1)))
    served.wait_for_calls()
    labels = {"grpc_service": SERVICE, "grpc_method": "Generate", "grpc_type": "server_stream"}
    assert served.metric("grpc_server_handled_total", **labels, grpc_code="OK") >= 1
    with grpc.insecure_channel(served.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        assert database.FindFileContainingSymbol(SERVICE).name == "vllm_engine.proto"


def test_gwy_3_without_the_setting_no_server_speaks_it() -> None:
    assert read_settings(None, []).settings.listen.compat == ()
    with serve() as served, grpc.insecure_channel(served.address) as channel:
        codes = {call(channel, path_of(method.name)).code for method in ENGINE.methods}
    assert codes == {"UNIMPLEMENTED"}


def test_gwy_3_the_setting_leaves_the_addresses_as_they_are() -> None:
    assert read_settings(None, [COMPAT]).settings.listen.http == ("127.0.0.1:8000",)
    assert read_settings(None, [COMPAT, 'listen.grpc=["127.0.0.1:1"]']).settings.listen.http == ()


def test_gwy_3_a_server_without_the_package_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE or "rpc.vllm." in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(ConfigError) as raised, serve(COMPAT):
        pass
    assert "listen.compat" in str(raised.value)
    assert "the extra `smg`" in str(raised.value)
    with serve():  # without the setting the package is not needed
        pass


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokens")
    tokens = {"all": "data,read *", "data": "data *", "read": "read *", "acme": "data,read acme"}
    path: Path = folder / "tokens"
    path.write_text("".join(f"{hashlib.sha256(word.encode()).hexdigest()} {rest}\n" for word, rest in tokens.items()))
    path.chmod(0o600)
    with serve(COMPAT, f"auth.token_file={path}", metadata=bearer("all"), model=scripted(**ENDLESS)) as server:
        yield server


def bearer(word: str) -> Metadata:
    return (("authorization", f"Bearer {word}"),)


@pytest.mark.long
def test_gwy_3_roles_decide_who_may_call_what(guarded: Served) -> None:
    refused = "PERMISSION_DENIED"
    # A missing method needs no role, but it needs a token.
    assert codes_of(guarded, bearer("all")) == {"OK": READS | RUNS | PROBE, "UNIMPLEMENTED": LEFT_OUT}
    assert codes_of(guarded, bearer("read")) == {"OK": READS | PROBE, refused: RUNS, "UNIMPLEMENTED": LEFT_OUT}
    # Who generates may ask what the model can do.
    both = {"GetModelInfo"}
    found = codes_of(guarded, bearer("data"))
    assert found == {"OK": RUNS | PROBE | both, refused: READS - both, "UNIMPLEMENTED": LEFT_OUT}
    assert codes_of(guarded) == {"OK": PROBE, "UNAUTHENTICATED": READS | RUNS | LEFT_OUT}


@pytest.mark.long
def test_gwy_3_the_tenant_is_that_of_the_token(guarded: Served) -> None:
    engine = stub(guarded)
    mine = bearer("acme")
    running = engine.Generate(asking([300], stream=True, request_id="r", ignore_eos=True), metadata=mine)
    next(running)
    (request,) = guarded.call(lambda: list(guarded.state.requests))
    assert (request.request_id, request.tenant) == ("r", "acme")
    engine.Abort(vllm.AbortRequest(request_ids=["r"]), metadata=mine)
    assert list(running)[-1].complete.finish_reason == "abort"
    guarded.wait_for_rest()
