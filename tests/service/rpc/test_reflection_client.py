"""A client that uses only reflection lists, describes and calls every method of every service."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

Json = dict[str, Any]


class ReflectingClient:
    """A client of one server that works like grpcurl."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> list[ServiceDescriptor]:
        """Returns every service that the server names, with descriptors of its methods and messages."""
        return [self._pool.FindServiceByName(name) for name in self._database.get_services()]

    def call(self, method: MethodDescriptor, requests: Sequence[Json]) -> list[Json]:
        """Returns the replies of any kind of method. Takes one request unless the method takes a stream."""
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, False): self.channel.stream_unary,
            (True, True): self.channel.stream_stream,
        }
        request_class = GetMessageClass(method.input_type)
        multi_callable = kinds[method.client_streaming, method.server_streaming](
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        messages = [json_format.ParseDict(request, request_class()) for request in requests]
        # A watch ends only when its client cancels it; this client needs only its first message.
        is_endless = method.name.startswith("Watch") or method.name == "Watch"
        call = multi_callable(iter(messages) if method.client_streaming else messages[0], timeout=HANGS_AFTER)
        replies: Iterator[Any] = call if method.server_streaming else iter([call])
        read = [next(replies)] if is_endless else list(replies)
        if is_endless:
            call.cancel()
        return [json_format.MessageToDict(reply, preserving_proto_field_name=True) for reply in read]


SERVICES = {
    "imp.v1.InferenceService",
    "imp.v1.ModelService",
    "imp.v1.TokenizerService",
    "imp.v1.AdminService",
    "grpc.health.v1.Health",
    "grpc.channelz.v1.Channelz",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}
PROMPT, IDS = "Once upon a time", [560, 537, 256, 430]
GREEDY = {"sampling": {"temperature": 0}, "stop": {"max_tokens": 4}}
STORY = ", in a little"


def text_of(replies: list[Json]) -> str:
    return "".join(r.get("chunk", r.get("finished", {})).get("text", "") for r in replies)


def step_text(reply: Json) -> str:
    return str(reply["results"][0]["output"]["text"])


def position(reply: Json) -> object:
    return reply["output"]["position"]


def stream_text(replies: list[Json]) -> object:
    prefill, step, release = replies
    return position(prefill["prefill"]), step_text(step["step"]), release["release"]


# In the order of the calls: method -> requests, and a check of the replies.
CALLS: dict[str, tuple[list[Json], Callable[[list[Json]], bool]]] = {
    # Long enough to fill blocks of the cache.
    "Generate": (
        [{"text": PROMPT, "sampling": {"temperature": 0}, "stop": {"max_tokens": 40}}],
        lambda rs: "started" in rs[0] and text_of(rs).startswith(STORY),
    ),
    "GenerateUnary": (
        [{"request": {"token_ids": {"ids": IDS}, **GREEDY}}],
        lambda rs: rs[0]["sequences"][0]["output"]["text"] == STORY,
    ),
    "Prefill": (
        [{"session_id": "s", "position": 0, "text": PROMPT, "sampling": {"temperature": 0}}],
        lambda rs: position(rs[0]) == 4,
    ),
    "ForkSession": ([{"session_id": "s", "new_session_id": "t"}], lambda rs: rs[0]["position"] == 4),
    "DecodeStep": ([{"steps": [{"session_id": "s"}, {"session_id": "t"}]}], lambda rs: step_text(rs[0]) == " in"),
    "TruncateSession": ([{"session_id": "s", "position": 2}], lambda rs: rs[0]["position"] == 2),
    "DecodeStream": (
        [{"prefill": {"text": PROMPT, "sampling": {"temperature": 0}, "session_id": "u", "position": 0}},
         {"step": {"steps": [{"session_id": "u"}]}},
         {"release": {"session_id": "u"}}],
        lambda rs: stream_text(rs) == (4, " in", {"released": True}),
    ),
    "Decide": (
        [{"text": PROMPT, "labels": [",", " a"]}],
        lambda rs: rs[0]["label"] == "," and rs[0]["labels"][0]["probability"] > 0.9,
    ),
    "Tokenize": ([{"texts": [PROMPT]}], lambda rs: rs[0]["results"][0]["token_ids"] == IDS),
    "Detokenize": ([{"token_ids": [{"ids": IDS}]}], lambda rs: rs[0]["texts"] == [PROMPT]),
    "ApplyChatTemplate": (
        [{"chat": {"messages": [{"role": "user", "content": "What is imp?"}]}}],
        lambda rs: rs[0]["text"] == "<|im_start|>user\nWhat is imp?<|im_end|>\n<|im_start|>assistant\n",
    ),
    "GetTokenizer": ([{}], lambda rs: len(rs[-1]["sha256"]) == 64),
    "GetModelInfo": ([{}], lambda rs: rs[0]["architecture"] == "qwen3"),
    "GetServerInfo": ([{}], lambda rs: rs[0]["device"] == "cpu"),
    "GetLoad": ([{}], lambda rs: rs[0]["load"]["sessions"] == 2),
    "WatchLoad": ([{"min_interval": "0.1s"}], lambda rs: rs[0]["load"]["sessions"] == 2),
    "ListSessions": ([{}], lambda rs: {s["session_id"] for s in rs[0]["sessions"]} == {"s", "t"}),
    "ReleaseSession": ([{"session_id": "s"}], lambda rs: rs[0]["released"] is True),
    "ListRequests": ([{}], lambda rs: set(rs[0]) == {"time"}),
    "Abort": ([{"all": True}], lambda rs: rs == [{}]),
    "FlushCache": ([{}], lambda rs: int(rs[0]["freed_blocks"]) >= 1),
    "Profile": ([{"steps": 1}], lambda rs: "traceEvents" in json.loads(b"".join(b64decode(r["data"]) for r in rs))),
    "Check": ([{"service": "imp.v1.InferenceService"}], lambda rs: rs == [{"status": "SERVING"}]),
    "Watch": ([{"service": ""}], lambda rs: rs == [{"status": "SERVING"}]),
    "List": ([{}], lambda rs: "liveness" in rs[0]["statuses"]),
    "ServerReflectionInfo": (
        [{"list_services": ""}],
        lambda rs: {"name": "grpc.health.v1.Health"} in rs[0]["list_services_response"]["service"],
    ),
    "GetServers": ([{}], lambda rs: len(rs[0]["server"]) >= 1),
    "GetTopChannels": ([{}], lambda rs: rs[0]["end"] is True),
    "Drain": ([{"timeout": "1s"}], lambda rs: rs[-1]["drained"] is True),
    "Resume": ([{}], lambda rs: rs == [{}]),
    "Reload": ([{}], lambda rs: rs == [{}]),
}  # fmt: skip
# Methods that rightly end with an error here: (request, code).
REFUSED: dict[str, tuple[Json, grpc.StatusCode]] = {
    "Embed": ({"texts": [PROMPT]}, grpc.StatusCode.UNIMPLEMENTED),
    "Rerank": ({"query": PROMPT, "documents": [PROMPT]}, grpc.StatusCode.UNIMPLEMENTED),
    # No object has these numbers: the server assigns its own.
    "GetChannel": ({"channel_id": "999999"}, grpc.StatusCode.NOT_FOUND),
    "GetSubchannel": ({"subchannel_id": "999999"}, grpc.StatusCode.NOT_FOUND),
    "GetServer": ({"server_id": "999999"}, grpc.StatusCode.NOT_FOUND),
    "GetServerSockets": ({"server_id": "999999"}, grpc.StatusCode.NOT_FOUND),
    "GetSocket": ({"socket_id": "999999"}, grpc.StatusCode.NOT_FOUND),
}


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[ReflectingClient, MethodDescriptor]]]:
    """Maps the full name of every method of every listener to its client and descriptor."""
    settings = ("listen.admin=127.0.0.1:0",)
    with server_process(tmp_path_factory.mktemp("reflection"), settings=settings) as server:
        facts = server.wait_until_ready()
        found: dict[str, tuple[ReflectingClient, MethodDescriptor]] = {}
        channels = [grpc.insecure_channel(address) for address in (facts["grpc"][0], facts["admin"])]
        for channel in channels:
            client = ReflectingClient(channel)
            for service in client.services():
                for method in service.methods:
                    found.setdefault(method.full_name, (client, method))
        yield found
        for channel in channels:
            channel.close()


def test_a_generic_client_lists_every_service(methods):
    assert {name.rpartition(".")[0] for name in methods} == SERVICES


def test_rpc_21_both_protocols_of_reflection_say_the_same(methods):
    """grpc_reflection lacks the current protocol. imp serves it with the names, files and errors of the older one."""
    channels = {id(client): client.channel for client, _ in methods.values()}
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"),
        reflection_pb2.ServerReflectionRequest(file_by_filename=health_pb2.DESCRIPTOR.name),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.reflection.v1.ServerReflection"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Service"),
    ]
    for channel in channels.values():
        told = [
            list(
                channel.stream_stream(
                    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                    request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                    response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
                )(iter(asked), timeout=HANGS_AFTER)
            )
            for version in ("v1", "v1alpha")
        ]
        assert told[0] == told[1]
        kinds = [reply.WhichOneof("message_response") for reply in told[0]]
        assert kinds == ["list_services_response", *["file_descriptor_response"] * 3, "error_response"]
        described = FileDescriptorProto.FromString(told[0][3].file_descriptor_response.file_descriptor_proto[0])
        assert (described.package, described.service[0].name) == ("grpc.reflection.v1", "ServerReflection")
        method = described.service[0].method[0]
        assert method.input_type == ".grpc.reflection.v1.ServerReflectionRequest"


def test_a_generic_client_describes_every_message(methods):
    """Describes all messages down to the last field, as a tool prints them or builds forms."""
    seen: set[str] = set()

    def describe(message: Any) -> None:
        if message.full_name in seen:
            return
        seen.add(message.full_name)
        for field in message.fields:
            if field.message_type is not None:
                describe(field.message_type)

    for _, method in methods.values():
        describe(method.input_type)
        describe(method.output_type)
    assert {"imp.v1.GenerateRequest", "imp.v1.DryOptions", "imp.v1.StepError", "imp.v1.RequestState"} <= seen


def test_a_generic_client_calls_every_method(methods):
    by_name = {name.rpartition(".")[2]: found for name, found in methods.items()}
    # Older packages of the health service have no List.
    assert (CALLS.keys() | REFUSED.keys()) ^ by_name.keys() <= {"List"}
    for name, (request, code) in REFUSED.items():
        client, method = by_name[name]
        with pytest.raises(grpc.RpcError) as caught:
            client.call(method, [request])
        assert caught.value.code() is code, name
    for name, (requests, holds) in CALLS.items():
        if name not in by_name:
            continue
        client, method = by_name[name]
        replies = while_it_works(by_name, client, method) if name == "Profile" else client.call(method, requests)
        assert holds(replies), (name, replies)


def while_it_works(
    by_name: dict[str, tuple[ReflectingClient, MethodDescriptor]], client: ReflectingClient, method: MethodDescriptor
) -> list[Json]:
    """Returns the replies of Profile. It keeps the engine busy: an idle engine has no steps to record."""
    with ThreadPoolExecutor(1) as pool:
        profile = pool.submit(client.call, method, CALLS["Profile"][0])
        data, generate = by_name["Generate"]
        while not profile.done():
            data.call(generate, CALLS["Generate"][0])
        return profile.result()
