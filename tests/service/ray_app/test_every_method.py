"""Every method through a replica without Ray ends as on imp's own server, whatever the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, tokenizer_pb2
from imp_service.ray_app.proxied_services import SERVICES
from support.calls.raw_calls import Ended, call, path_of
from support.servers.ray_stand_in import serve_behind_stand_in
from support.servers.served import ask, serve, tokens_of
from support.servers.vector_served import POOLED

SETTINGS = ("device.threads=1", "kv.bytes=8MiB", "text.threads=1", POOLED)
METHODS = [method for service in SERVICES for method in service.methods]
GENERATE = ask("Once upon a time", 8, sampling={"seed": 3})
# Method -> a request that ends with OK. Behind Ray the methods of sessions have none.
ANSWERED: dict[str, Any] = {
    "Generate": GENERATE,
    "GenerateUnary": pb.GenerateUnaryRequest(request=GENERATE),
    "Embed": pb.EmbedRequest(texts=["Once upon", "a time"], dimensions=7),
    "Decide": pb.DecideRequest(request_id="r", text="Once upon", labels=[" a", " the"]),
    "Tokenize": tokenizer_pb2.TokenizeRequest(texts=["Once upon"]),
    "Detokenize": tokenizer_pb2.DetokenizeRequest(token_ids=[{"ids": [5, 6]}]),
    "ApplyChatTemplate": tokenizer_pb2.ApplyChatTemplateRequest(chat={"messages": [{"role": "user", "content": "a"}]}),
    "GetTokenizer": tokenizer_pb2.GetTokenizerRequest(),
    "GetModelInfo": model_pb2.GetModelInfoRequest(),
    "GetServerInfo": model_pb2.GetServerInfoRequest(),
    "GetLoad": model_pb2.GetLoadRequest(),
    "WatchLoad": model_pb2.WatchLoadRequest(),
}
REFUSED = {"Prefill", "DecodeStep", "DecodeStream", "ForkSession", "TruncateSession", "ReleaseSession"}
# The built-in model ranks nothing.
UNSUPPORTED = {"Rerank"}
# Their replies differ between processes: an id, a time, a number of calls.
OF_A_PROCESS = {"GetServerInfo", "GetLoad", "WatchLoad"}


@pytest.fixture(scope="module")
def proxied() -> Iterator[grpc.Channel]:
    """A connection to one replica."""
    with serve_behind_stand_in(1, SETTINGS) as address, grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture(scope="module")
def direct() -> Iterator[grpc.Channel]:
    """A connection to imp's own server."""
    with serve(*SETTINGS) as served, grpc.insecure_channel(served.address) as channel:
        yield channel


def n_replies(method: MethodDescriptor) -> int | None:
    """Returns how many replies to read: WatchLoad has no end."""
    return 1 if method.name == "WatchLoad" else None


def read(method: MethodDescriptor, ended: Ended) -> Any:
    """Returns the replies without what differs between calls: ids, times, the tokens per message."""
    replies: list[Any] = [GetMessageClass(method.output_type).FromString(reply) for reply in ended.replies]
    if method.name == "Generate":
        return tokens_of(replies), replies[-1].finished.reason
    if method.name == "GenerateUnary":
        replies[0].ClearField("timings")
        replies[0].started.ClearField("request_id")
        replies[0].started.origin.ClearField("created")
        replies[0].started.origin.ClearField("server")  # the own server makes no first step, whose bits are a part
    if method.name == "Embed":
        replies[0].ClearField("timings")
    if method.name == "GetModelInfo":
        replies[0].ClearField("weights_sha256")  # computed in the background from the first call on
    return replies


def test_gwy_1_every_method_has_a_request_here() -> None:
    assert ANSWERED.keys() | REFUSED | UNSUPPORTED == {method.name for method in METHODS}
    assert not ANSWERED.keys() & (REFUSED | UNSUPPORTED)


@pytest.mark.few(5)
@pytest.mark.parametrize("method", [m for m in METHODS if m.name in ANSWERED], ids=lambda method: method.name)
def test_gwy_1_a_method_answers_as_on_the_own_server(
    method: MethodDescriptor, proxied: grpc.Channel, direct: grpc.Channel
) -> None:
    content = ANSWERED[method.name].SerializeToString()
    found, expected = (call(c, path_of(method), content, n_replies=n_replies(method)) for c in (proxied, direct))
    assert found.code == expected.code, found
    assert {"imp-request-id", "imp-instance-id"} <= found.initial.keys()
    assert found.initial.keys() == expected.initial.keys()
    assert found.trailing.keys() == expected.trailing.keys()
    assert len(found.replies) > 0
    if method.name not in OF_A_PROCESS:
        assert read(method, found) == read(method, expected)


@pytest.mark.few(7)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("content", [b"", b"\xff\xff"], ids=["empty", "malformed"])
def test_gwy_1_a_method_refuses_as_on_the_own_server(
    method: MethodDescriptor, content: bytes, proxied: grpc.Channel, direct: grpc.Channel
) -> None:
    found, expected = (call(c, path_of(method), content, n_replies=n_replies(method)) for c in (proxied, direct))
    assert found.code not in ("INTERNAL", "UNKNOWN"), found
    # A request stream is refused before its first message is read.
    if content or method.name not in REFUSED:
        if method.name == "DecodeStream":
            assert found.reason == "NOT_SUPPORTED_BY_HOST"
        else:
            assert (found.code, found.reason) == (expected.code, expected.reason)
            assert found.details.paths == expected.details.paths


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_gwy_1_a_method_that_ray_cannot_host_is_refused_by_name(name: str, proxied: grpc.Channel) -> None:
    method = next(m for m in METHODS if m.name == name)
    ended = call(proxied, path_of(method), b"")
    assert ended.code == "UNIMPLEMENTED"
    assert ended.details.metadata == {"feature": name}
