"""Types of the cache by layer: the model has them, and memory, inspect, GetServerInfo and replies say the same."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import MessageToDict

from imp_service.cli.shell import main
from imp_service.config.toml import write_key
from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc
from imp_service.pb.inference_pb2 import GenerateUnaryRequest
from imp_service.tables import KV_TYPES
from support.servers.served import ask, serve
from support.servers.served_models import scripted

# The types of all layers, those of ranges, those of the four layers, and what replies say.
TABLE = [
    ("f16", {}, ["f16"] * 4, None),
    ("auto", {"0": "rot8"}, ["rot8", "bf16", "bf16", "bf16"], "kv=mixed"),
    ("bf16", {"-1": "f32"}, ["bf16", "bf16", "bf16", "f32"], None),
    ("f32", {"0--1": "q8_0"}, ["q8_0"] * 4, "kv=q8_0"),
    ("bf16", {"-4": "rot4"}, ["rot4", "bf16", "bf16", "bf16"], "kv=mixed"),
    ("rot4", {"1": "rot4"}, ["rot4"] * 4, "kv=rot4"),
    ("rot8/rot3", {"-2--1": "rot8"}, ["rot8/rot3", "rot8/rot3", "rot8", "rot8"], "kv=mixed"),
    ("rot8/rot4", {"0-1": "q8_0", "-2--1": "f16"}, ["q8_0", "q8_0", "f16", "f16"], "kv=mixed"),
    ("f16", {"2": "rot2", "1-2": "rot3", "0-3": "rot4"}, ["rot4", "rot3", "rot2", "rot4"], "kv=mixed"),
    ("rot8", {"0-2": "rot8/rot2", "2-3": "f32/q8_0", "3-3": "bf16/f16"},
     ["rot8/rot2", "rot8/rot2", "f32/q8_0", "bf16/f16"], "kv=mixed"),
    ("q8_0", {"3": "f16/rot3", "-1": "f16/rot3"}, ["q8_0", "q8_0", "q8_0", "f16/rot3"], "kv=mixed"),
    ("f16", {"0-1": "rot8", "1-2": "rot8/rot8"}, ["rot8", "rot8", "rot8", "f16"], "kv=mixed"),
    ("rot2", {"0-3": "rot8/rot4"}, ["rot8/rot4"] * 4, "kv=rot8/rot4"),
]  # fmt: skip


@pytest.mark.parametrize(("kv_dtype", "ranges", "by_layer", "said"), TABLE)
def test_kvq_12_layers_have_their_types_wherever_they_are_shown(
    kv_dtype: str, ranges: dict[str, str], by_layer: list[str], said: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    layers = {f"model.overrides.kv_layers.{write_key(name)}": word for name, word in ranges.items()}
    settings = [f"kv.dtype={kv_dtype}", "kv.trial=false", *(f"{key}={word}" for key, word in layers.items())]
    values = 2 * 64  # of K or of V: heads, head size
    per_token = sum(values * KV_TYPES[name].bits / 8 for word in by_layer for name in (word.split("/") * 2)[:2])
    with serve(*settings, model=scripted()) as served:
        core = served.state.model.core
        told = MessageToDict(model_pb2_grpc.ModelServiceStub(served.channel()).GetServerInfo(
            model_pb2.GetServerInfoRequest()).config)  # fmt: skip
        stub = inference_pb2_grpc.InferenceServiceStub(served.channel())
        _, call = stub.GenerateUnary.with_call(GenerateUnaryRequest(request=ask([400], 3)))
        kv_bytes = core.memory["items"]["kv"]
    assert core.kv_dtypes == by_layer
    assert kv_bytes == core.n_blocks * core.kv_block_tokens * per_token
    assert dict(call.initial_metadata()).get("imp-approximations") == said
    assert {key: told[key] for key in layers} == {
        key: "rot8" if word == "rot8/rot8" else word for key, word in layers.items()
    }
    capfd.readouterr()
    assert main(["inspect", "--json", *(word for setting in settings for word in ("--set", setting))]) == 0
    inspected = json.loads(capfd.readouterr().out)
    assert inspected["memory"]["kv_bytes_per_token"] == per_token
    facts = [fact for fact in inspected["facts"] if fact["name"] == "kv_layers"]
    assert facts == [fact for fact in core.facts if fact["name"] == "kv_layers"]
    assert [spread(fact["value"]) for fact in facts] == ([by_layer] if ranges else [])


def spread(text: str) -> list[str]:
    """Returns the types by layer of a text such as "0-1 q8_0, 2 f16"."""
    words: list[str] = []
    for part in text.split(", "):
        place, _, word = part.partition(" ")
        first, _, last = place.partition("-")
        assert len(words) == int(first)
        words += [word] * (int(last or first) - int(first) + 1)
    return words
