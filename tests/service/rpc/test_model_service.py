"""ModelService through gRPC: its descriptions of model, server, settings, load and lossy features are correct."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

import imp_service
from imp_service import _core
from imp_service.api.revision import API_REVISION
from imp_service.cli.shell import main
from imp_service.config import read_settings
from imp_service.config.render import as_json
from imp_service.core.directory import name_of, shown_name
from imp_service.models import demo_model_path
from imp_service.pb import (
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from imp_service.pb import model_pb2 as pb
from imp_service.rpc.server import GrpcServer
from imp_service.serving.listening import checked_addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from imp_service.serving.utilization import UtilizationMeter
from imp_service.telemetry.engine_numbers import EngineCollector
from support.calls import wire
from support.calls.status_details import read_details
from support.engine.engine_numbers import Numbers
from support.files.gguf_writer import ARRAY, STRING, U32, Key
from support.machine.command_line import demo_with_keys
from support.servers.loop_thread import loop_thread
from support.servers.scraped import scrape
from support.servers.served import Served, ask, serve
from support.servers.served_models import scripted

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("model.aliases=['demo', 'other']") as server:
        yield server


def stub_of(served: Served) -> model_pb2_grpc.ModelServiceStub:
    return model_pb2_grpc.ModelServiceStub(served.channel())


def unset_fields(message: Any) -> set[str]:
    return {field.name for field in message.DESCRIPTOR.fields} - {field.name for field, _ in message.ListFields()}


def info_with_digest(served: Served) -> pb.GetModelInfoResponse:
    """Calls until the digest is there: it is computed in the background, and each call gives it time."""
    stub = stub_of(served)
    answers = (stub.GetModelInfo(pb.GetModelInfoRequest()) for _ in range(100_000))
    return next(info for info in answers if info.weights_sha256)


@pytest.mark.long
def test_rpc_15_the_model_is_described_as_its_file_has_it(served: Served) -> None:
    info = info_with_digest(served)
    reader = gguf.GGUFReader(demo_model_path())
    keys = {name: field.contents() for name, field in reader.fields.items()}
    assert (info.model, list(info.aliases)) == (keys["general.name"], ["demo", "other"])
    assert info.architecture == keys["general.architecture"]
    assert info.parameters == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert info.weight_format == "q8_0"
    assert info.weights_sha256 == hashlib.sha256(demo_model_path().read_bytes()).hexdigest()
    assert info.tokenizer_sha256 == served.state.model.tokenizer.sha256
    assert info.max_context_tokens == keys["qwen3.context_length"]
    assert info.vocab_size == len(keys["tokenizer.ggml.tokens"])
    assert info.bos_token_id == keys["tokenizer.ggml.bos_token_id"]
    spelled = {keys["tokenizer.ggml.tokens"][token] for token in info.eos_token_ids}
    assert spelled == {"<|endoftext|>", "<|im_end|>"}
    assert info.chat_template == keys["tokenizer.chat_template"]
    assert info.default_sampling.temperature == keys["general.sampling.temp"]
    assert info.default_sampling.top_p == keys["general.sampling.top_p"]
    assert unset_fields(info.default_sampling) == {"seed", "logit_bias"}
    origins = {"temperature": "model", "top_p": "model", "penalty_window": "imp"}
    assert {name: info.default_sampling_origins[name] for name in origins} == origins
    assert info.max_top_logprobs == 20
    assert list(info.constraints) == ["json_schema", "regex", "gbnf", "choices", "json_object"]
    assert list(info.drafters) == ["ngram", "grammar"]
    # Embeddings are not implemented. By default there is no sparse prefill.
    assert unset_fields(info) == {"supports_embeddings", "supports_sparse_prefill"}


def test_rpc_15_settings_show_in_what_the_model_can_do(served: Served) -> None:
    settings = ("features.logits=false", "limits.max_context=100", "model.name=mine", f"model.sha256={sha256()}")
    with serve(*settings, "sparse_prefill.enabled=true") as other:
        info = stub_of(other).GetModelInfo(pb.GetModelInfoRequest(model="mine"))
    assert (info.model, info.supports_logits, info.max_context_tokens) == ("mine", False, 100)
    assert info.supports_sparse_prefill
    # The digest is known at once if it was compared before loading.
    assert info.weights_sha256 == sha256()


def sha256() -> str:
    return hashlib.sha256(demo_model_path().read_bytes()).hexdigest()


def test_rpc_15_pkg_1_the_server_is_described_as_it_is(served: Served) -> None:
    info = stub_of(served).GetServerInfo(pb.GetServerInfoRequest())
    assert info.version == imp_service.__version__
    if info.revision:  # the revision of the checkout of the build
        found = subprocess.run(["git", "cat-file", "-t", info.revision], cwd=ROOT, capture_output=True, check=False)
        assert found.stdout == b"commit\n"
    assert info.instance_id == served.state.instance_id
    assert info.start_time.ToMicroseconds() == round(served.state.started_at * 1e6)
    assert (info.device, info.threads) == ("cpu", 1)
    [name] = info.device_names
    assert any(isa in name for isa in _core.known_isas())
    assert (info.kv_block_tokens, info.kv_blocks) == (16, served.state.model.core.n_blocks)
    assert (info.max_running, info.max_waiting) == (64, 256)
    assert info.api_revision == API_REVISION
    known = served.state.model.fingerprint
    assert (info.fingerprint, dict(info.fingerprint_parts)) == (known.digest, dict(known.parts))
    assert unset_fields(info) <= {"revision"}


def test_rpc_15_the_configuration_is_the_one_in_effect(served: Served) -> None:
    told = MessageToDict(stub_of(served).GetServerInfo(pb.GetServerInfoRequest()).config)
    assert told == json.loads(as_json(served.state.config))
    assert (told["device.threads"], told["listen.health"]) == (1, None)


def test_rpc_15_the_configuration_holds_no_secret(served: Served) -> None:
    before = served.state.config
    served.state.config = read_settings(None, ["tracing.endpoint=http://me:secret@127.0.0.1:4317"])
    info = stub_of(served).GetServerInfo(pb.GetServerInfoRequest())
    served.state.config = before
    assert info.config["tracing.endpoint"] == "http://127.0.0.1:4317"
    assert b"secret" not in info.SerializeToString()


@pytest.mark.parametrize("name", ["imp demo", "demo", "other", ""])
def test_rpc_9_names_that_are_served(served: Served, name: str) -> None:
    assert stub_of(served).GetModelInfo(pb.GetModelInfoRequest(model=name)).model == "imp demo"


def test_rpc_9_p27_a_name_that_is_not_served(served: Served) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        stub_of(served).GetModelInfo(pb.GetModelInfoRequest(model="nosuch"))
    details = read_details(raised.value.trailing_metadata())
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert (details.reason, details.metadata) == ("MODEL_NOT_SERVED", {"served": "imp demo, demo, other"})
    with pytest.raises(grpc.RpcError) as raised:
        stub_of(served).GetModelInfo(pb.GetModelInfoRequest(model="n" * 257))
    assert read_details(raised.value.trailing_metadata()).paths == ["model"]


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (0, 0), (0, 1_000_000), (3601, 0), (1, 10**9), (1, -1)])
def test_p39_intervals_out_of_range(served: Served, seconds: int, nanos: int) -> None:
    interval = Duration(seconds=seconds, nanos=nanos)
    with pytest.raises(grpc.RpcError) as raised:
        list(stub_of(served).WatchLoad(pb.WatchLoadRequest(min_interval=interval)))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert read_details(raised.value.trailing_metadata()).paths == ["min_interval"]


def test_rpc_16_the_load_and_the_metrics_say_the_same() -> None:
    numbers = Numbers(
        running=3, waiting=2, waiting_tokens=70, sessions=5, blocks_live=3, blocks_free=9, silence_ns=1_500_000_000
    )
    families = EngineCollector(lambda: numbers, 16).collect()
    metrics = {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}
    with serve() as served:
        clock, wall = served.state.clock, served.state.wall
        served.state.utilization = UtilizationMeter(lambda: numbers, lambda: True, clock=clock, wall=wall)
        load = stub_of(served).GetLoad(pb.GetLoadRequest()).load
        watched = next(stub_of(served).WatchLoad(pb.WatchLoadRequest())).load
        for found in (load, watched):
            assert abs(found.time.ToNanoseconds() - wall() * 1e9) < 60e9
            found.ClearField("time")
        assert load == watched
    assert load.running == metrics["imp_requests_running"] == 3
    assert load.waiting == metrics["imp_requests_waiting"] == 2
    assert load.kv_usage == metrics["imp_kv_cache_usage_ratio"] == 0.25
    assert load.silence.ToMilliseconds() == 1000 * metrics["imp_engine_silence_seconds"] == 1500
    assert (load.waiting_tokens, load.sessions, load.draining) == (70, 5, True)
    rates = {"output_tokens_per_second", "draft_tokens_per_second", "accepted_draft_tokens_per_second"}
    assert unset_fields(load) == {"time", "cache_hit_rate", *rates}


def test_rpc_16_a_watcher_is_notified_of_changes_once_an_interval() -> None:
    with serve(model=scripted()) as served:
        watch = stub_of(served).WatchLoad(pb.WatchLoadRequest(min_interval=Duration(seconds=10)))
        assert next(watch).load.output_tokens_per_second == 0
        served.jump(11)  # nothing has changed: no message
        stream = served.inference.Generate(ask([300], 400))
        next(stream), next(stream)
        stream.cancel()
        served.wait_for_rest()
        served.jump(11)
        assert next(watch).load.output_tokens_per_second > 0
        watch.cancel()


@pytest.mark.long
def test_rpc_40_before_the_model_is_loaded() -> None:
    thread = loop_thread()

    async def start() -> tuple[ServerState, GrpcServer]:
        config = read_settings(None, ["listen.grpc=['127.0.0.1:0']", "device.threads=1"])
        state = ServerState(config, clock=thread.clock, wall=thread.clock.wall)
        server = GrpcServer(state, Access(state))
        await server.start(checked_addresses(config.settings.listen, state.telemetry.log))
        return state, server

    state, server = thread.run(start())
    with grpc.insecure_channel(server.addresses[0]) as channel:
        stub = model_pb2_grpc.ModelServiceStub(channel)
        info = stub.GetServerInfo(pb.GetServerInfoRequest())
        assert unset_fields(info) - {"revision"} == {
            "device", "device_names", "threads", "kv_blocks", "fingerprint", "fingerprint_parts",
        }  # fmt: skip
        assert stub.GetLoad(pb.GetLoadRequest()).load.running == 0
        with pytest.raises(grpc.RpcError) as raised:
            stub.GetModelInfo(pb.GetModelInfoRequest())
    details = read_details(raised.value.trailing_metadata())
    assert (raised.value.code(), details.reason) == (grpc.StatusCode.UNAVAILABLE, "LOADING")
    assert (details.retry_seconds, details.pushback_ms) == (1.0, None)

    async def stop() -> None:
        await server.stop(0)
        state.close()

    thread.run(stop())


LATIN = "Modèle naïf".encode("latin-1")
# A value of general.name, and the name that users get. Without one, it is that of the file.
NAMES = {
    "Latin-1": (STRING, LATIN, "Mod\ufffdle na\ufffdf"),
    "escapes": (STRING, "a\x1b[31mred\x07\x9b2J \r\n b\x00\x7f\u202ec", "a[31mred2J bc"),
    "control characters alone": (STRING, "\x1b\n\x00", "m"),
    "long": (STRING, "é" * 5000, "é" * 256),
    "empty": (STRING, "", "m"),
    "an array": (ARRAY, ["one", "two"], "m"),
    "a number": (U32, 7, "m"),
    "UTF-8": (STRING, "模型 β", "模型 β"),
}


@pytest.mark.parametrize("case", NAMES)
def test_m84_a_model_with_any_name_is_served_under_a_printable_one(case: str, tmp_path: Path) -> None:
    kind, value, shown = NAMES[case]
    key = Key("general.name", kind, value, element=STRING)
    path = demo_with_keys(tmp_path / "m.gguf", key, without="general.name")
    with serve(f"model.path={path}") as served:
        assert stub_of(served).GetModelInfo(pb.GetModelInfoRequest()).model == shown
        generate = inference_pb2_grpc.InferenceServiceStub(served.channel()).GenerateUnary
        answer = generate(inference_pb2.GenerateUnaryRequest(request=wire.ask([400], 3)))
        assert answer.started.model == shown
        assert any(f"={shown}]" in name for name in scrape(served))


def test_m84_a_template_that_is_not_utf8_is_described(tmp_path: Path) -> None:
    name = "tokenizer.chat_template"
    path = demo_with_keys(tmp_path / "m.gguf", Key(name, STRING, LATIN), without=name)
    with serve(f"model.path={path}") as served:
        info = stub_of(served).GetModelInfo(pb.GetModelInfoRequest())
        assert info.chat_template == LATIN.decode("utf-8", "replace")
        assert served.state.model.tokenizer.archive(served.state.model.text.template_source)


def test_m84_the_name_of_a_file_is_printable(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9\x1b[2J.gguf")
    demo_with_keys(path)
    assert name_of(_core.open_model_file(path)) == "caf\ufffd[2J"
    assert shown_name(path) == "caf\ufffd[2J.gguf"


OVERRIDES = {"rope_theta": "20000.0", "max_context": "96", "kv_dtype": "f32"}
SECRET = "canary-5f1c"


def told_by_server(served: Served) -> dict[str, Any]:
    stub = model_pb2_grpc.ModelServiceStub(served.channel())
    told: dict[str, Any] = MessageToDict(stub.GetServerInfo(model_pb2.GetServerInfoRequest()).config)
    return told


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert main(list(words)) == 0
    return capfd.readouterr().out


def test_mod_10_three_overrides_are_the_same_wherever_they_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    settings = [f"model.overrides.{name}={value}" for name, value in OVERRIDES.items()]
    given = [word for setting in settings for word in ("--set", setting)]
    shown = dict(line.split("  # ") for line in printed(capfd, "config", "show", "--origin", *given).splitlines())
    origins = {line.rstrip(): origin.strip() for line, origin in shown.items()}
    inspected = json.loads(printed(capfd, "inspect", str(demo_model_path()), "--json", *given))["facts"]
    facts = {fact["name"]: fact for fact in inspected}
    with serve(*settings) as served:
        told = told_by_server(served)
        loaded = {fact["name"]: fact for fact in served.state.model.core.facts}
    for name, value in OVERRIDES.items():
        quoted = f'"{value}"' if name == "kv_dtype" else value
        assert origins[f"model.overrides.{name} = {quoted}"] == "--set"
        assert str(told[f"model.overrides.{name}"]).removesuffix(".0") == value.removesuffix(".0")
        assert (facts[name]["value"], facts[name]["origin"]) == (value.removesuffix(".0"), "override")
        assert facts[name] == loaded[name]
    plain = [fact for name, fact in facts.items() if name not in OVERRIDES]
    assert {fact["origin"] for fact in plain} == {"checkpoint", "architecture"}


@pytest.mark.long
def test_cfg_6_the_server_tells_what_config_show_prints_less_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    """The settings that are chosen for the machine are not compared."""
    given = [f"tracing.endpoint=http://me:{SECRET}@127.0.0.1:4317", "kv.block_tokens=32"]
    words = [word for setting in given for word in ("--set", setting)]
    out = printed(capfd, "config", "show", "--json", *words)
    printed_settings = json.loads(out)
    with serve() as served:
        before, served.state.config = served.state.config, read_settings(None, given)  # this config exports nothing
        told = told_by_server(served)
        served.state.config = before
        assert SECRET not in "\n".join(served.log_lines())
    # `imp config show` prints the user's own file, secrets included.
    assert SECRET in printed_settings["tracing.endpoint"]
    assert SECRET not in json.dumps(told)
    assert told["tracing.endpoint"] == "http://127.0.0.1:4317"
    assert told.keys() == printed_settings.keys()
    differing = {name for name, value in printed_settings.items() if told[name] != value}
    assert {name for name in differing if not name.startswith("device.")} == {"tracing.endpoint"}


def said(served: Served) -> list[str | None]:
    """Returns imp-approximations from two replies: a generation's, and that of a call that does not use the model."""
    channel = served.channel()
    request = inference_pb2.GenerateUnaryRequest(request=ask([400], 3))
    _, generated = inference_pb2_grpc.InferenceServiceStub(channel).GenerateUnary.with_call(request)
    texts = tokenizer_pb2.TokenizeRequest(texts=["a"])
    _, tokenized = tokenizer_pb2_grpc.TokenizerServiceStub(channel).Tokenize.with_call(texts)
    return [dict(call.initial_metadata()).get("imp-approximations") for call in (generated, tokenized)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], None),
        (["kv.dtype=bf16"], None),
        (["kv.dtype=q8_0"], "kv=q8_0"),
        (["model.overrides.kv_dtype=q8_0"], "kv=q8_0"),
        (["kv.dtype=q8_0", "model.overrides.kv_dtype=f32"], None),
    ],
)
def test_kvq_10_rpc_12_a_quantized_cache_says_so_in_every_reply(settings: list[str], expected: str | None) -> None:
    with serve(*settings, model=scripted()) as served:
        assert said(served) == [expected, None]
