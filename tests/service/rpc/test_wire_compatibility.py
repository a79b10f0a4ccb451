"""Bytes of older and newer clients and servers: their meaning never changes, and unknown fields are skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import symbol_database
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from imp_service.api.revision import API_REVISION
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.filled_messages import filled
from support.calls.generations import result_of, streamed
from support.calls.request_fields import FILES
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import scripted

GOLDEN = json.loads((Path(__file__).resolve().parents[2] / "data" / "wire_golden.json").read_text(encoding="utf-8"))
# Field 2047, which no message has: a varint, and three bytes with a length.
UNKNOWN = b"\xf8\x7f\x05" + b"\xfa\x7f\x03new"


def message_class(name: str) -> type[Message]:
    return symbol_database.Default().GetSymbol(name)  # type: ignore[no-any-return]


def without_order(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


def as_read(message: Message) -> Any:
    return without_order(MessageToDict(message, preserving_proto_field_name=True))


def golden_row(message: Message) -> dict[str, Any]:
    return {"reads": as_read(message), "wire": message.SerializeToString(deterministic=True).hex()}


@pytest.mark.parametrize("name", sorted(GOLDEN["messages"]))
def test_rpc_5_l13_golden_bytes_are_read_the_same_for_ever(name: str) -> None:
    for row in GOLDEN["messages"][name]:
        message = message_class(name).FromString(bytes.fromhex(row["wire"]))
        assert as_read(message) == without_order(row["reads"])
        assert message.SerializeToString(deterministic=True).hex() == row["wire"]


def test_rpc_5_l13_every_message_of_the_first_revision_has_golden_bytes() -> None:
    methods = [
        method for file in FILES for service in file.DESCRIPTOR.services_by_name.values() for method in service.methods
    ]
    names = {message.full_name for method in methods for message in (method.input_type, method.output_type)}
    missing = {name: [golden_row(filled(message_class(name).DESCRIPTOR))] for name in names - GOLDEN["messages"].keys()}
    assert not missing, "add to tests/data/wire_golden.json: " + json.dumps(missing)
    assert names == GOLDEN["messages"].keys()
    assert GOLDEN["revision"] <= API_REVISION


def test_rpc_5_an_addition_raises_the_revision() -> None:
    """The messages may have fields beyond the golden ones only if api_revision has been raised."""
    today = {
        name: filled(message_class(name).DESCRIPTOR).SerializeToString(deterministic=True).hex()
        for name in GOLDEN["messages"]
    }
    has_grown = any(today[name] != rows[0]["wire"] for name, rows in GOLDEN["messages"].items())
    assert has_grown == (GOLDEN["revision"] < API_REVISION)


@pytest.mark.parametrize("name", sorted(GOLDEN["messages"]))
def test_rpc_5_p29_a_newer_peers_fields_are_passed_over(name: str) -> None:
    for row in GOLDEN["messages"][name]:
        known = bytes.fromhex(row["wire"])
        for newer in (known + UNKNOWN, UNKNOWN + known):
            message = message_class(name).FromString(newer)
            assert without_order(MessageToDict(message, preserving_proto_field_name=True)) == without_order(
                row["reads"]
            )


def raw_stream(served: Served, request: bytes) -> list[pb.GenerateResponse]:
    with grpc.insecure_channel(served.address) as channel:
        call = channel.unary_stream(
            "/imp.v1.InferenceService/Generate",
            request_serializer=lambda content: content,
            response_deserializer=pb.GenerateResponse.FromString,
        )
        return list(call(request))


def test_rpc_5_p29_a_server_passes_over_what_it_does_not_know() -> None:
    with serve(model=scripted()) as served:
        request = ask([300], 8, cache=types_pb2.CacheOptions(salt="s"))
        inner = request.cache.SerializeToString() + UNKNOWN
        known = pb.GenerateRequest.FromString(request.SerializeToString())
        known.ClearField("cache")
        # Field 11 contains the newer CacheOptions; its tag and its length take one byte each.
        newer = known.SerializeToString() + bytes([11 << 3 | 2, len(inner)]) + inner + UNKNOWN
        assert pb.GenerateRequest.FromString(newer).cache.salt == "s"
        assert result_of(raw_stream(served, newer)).outputs == streamed(served, request).outputs


def test_p29_of_two_members_of_a_oneof_the_last_wins() -> None:
    with serve(model=scripted()) as served:
        ids, text = ask([300], 4), pb.GenerateRequest(text="a")
        both = text.SerializeToString() + ids.SerializeToString()
        assert tokens_of(raw_stream(served, both)) == [301, 302, 303, 304]
