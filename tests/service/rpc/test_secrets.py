"""Nobody else sees what callers send: no status RPC, metric, channelz page or log line contains it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service.pb import admin_pb2, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc, types_pb2
from imp_service.pb import inference_pb2 as pb
from support.calls.admin_calls import LISTENS
from support.calls.failed_calls import failed
from support.calls.session_calls import SessionCalls
from support.calls.status_checker import SECRET
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, ask, serve

PROMPT = f"my key is {SECRET}, keep it"
CHAT = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content=PROMPT, name=SECRET)])


def marked(**fields: Any) -> pb.GenerateRequest:
    """Returns a request with the secret in every free text field."""
    request = ask(PROMPT, 3, **fields)
    request.cache.salt = SECRET
    request.stop.strings.append(SECRET)
    request.sampling.dry.breakers.append(SECRET)
    return request


def good_calls(served: Served) -> None:
    tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(served.channel())
    choices = types_pb2.Constraint(choices=types_pb2.Choices(values=[SECRET]))
    list(served.inference.Generate(marked()))
    served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=marked(constraint=choices)))
    list(served.inference.Generate(pb.GenerateRequest(chat=CHAT, stop=types_pb2.StopOptions(max_tokens=2))))
    tokenizer.Tokenize(tokenizer_pb2.TokenizeRequest(texts=[PROMPT]))
    tokenizer.ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT))


def bad_calls(served: Served) -> Iterator[Callable[[], Any]]:
    """Yields calls that are refused, most because of the field that holds the secret."""
    stub = served.inference
    tools = types_pb2.ChatPrompt(messages=CHAT.messages, tools_json=f'{{"{SECRET}"')
    for request in (
        marked(constraint=types_pb2.Constraint(regex=f"({SECRET}")),
        marked(constraint=types_pb2.Constraint(json_schema=f'{{"enum": ["{SECRET}"')),
        marked(cache=types_pb2.CacheOptions(bypass_prefix=True), num_sequences=99),
        marked(stop=types_pb2.StopOptions(strings=["", SECRET * 40])),
        pb.GenerateRequest(chat=tools),
        pb.GenerateRequest(text=PROMPT * 1000),
        pb.GenerateRequest(text=PROMPT, cache=types_pb2.CacheOptions(salt=SECRET * 9)),
    ):
        yield lambda request=request: list(stub.Generate(request))


def status_pages(served: Served) -> Iterator[Message]:
    """Yields every reply that describes the server or others' work."""
    admin, model = served.admin, model_pb2_grpc.ModelServiceStub(served.channel())
    yield admin.ListRequests(admin_pb2.ListRequestsRequest())
    yield admin.ListSessions(admin_pb2.ListSessionsRequest())
    yield model.GetLoad(model_pb2.GetLoadRequest())
    yield model.GetServerInfo(model_pb2.GetServerInfoRequest())
    yield model.GetModelInfo(model_pb2.GetModelInfoRequest())
    with grpc.insecure_channel(served.server.admin_address or "no admin listener") as channel:
        yield health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        pages = channelz_pb2_grpc.ChannelzStub(channel)
        servers = pages.GetServers(channelz_pb2.GetServersRequest())
        yield servers
        for each in servers.server:
            yield pages.GetServer(channelz_pb2.GetServerRequest(server_id=each.ref.server_id))
            yield pages.GetServerSockets(channelz_pb2.GetServerSocketsRequest(server_id=each.ref.server_id))


def holds_it(content: bytes) -> bool:
    """Reports whether the secret occurs in the content, as it is or escaped as JSON."""
    return SECRET.encode() in content or json.dumps(SECRET)[1:-1].encode() in content


@pytest.mark.long
@pytest.mark.parametrize("log_format", ["json", "text"])
def test_n10_obs_5_secrets_of_prompts_and_salts_appear_nowhere(log_format: str) -> None:
    settings = (LISTENS, "log.level=debug", f"log.format={log_format}", "scheduler.max_running=2")
    with gate() as held, serve(*settings, model=held.model()) as served:
        good_calls(served)
        refusals = [failed(call) for call in bad_calls(served)]
        assert {refusal.code for refusal in refusals} == {"INVALID_ARGUMENT", "OUT_OF_RANGE"}
        calls = SessionCalls(served)
        calls.prefill(PROMPT, "kept", position=0, cache=types_pb2.CacheOptions(salt=SECRET))
        # One request is stopped within a step, others run and wait, while the test reads every page.
        streams = [served.inference.Generate(ask([HELD - 1], 4))]
        held.wait()
        try:
            streams += [served.inference.Generate(marked(request_id=f"r{i}")) for i in range(3)]
            served.wait_until(lambda: len(served.state.requests) == 4, "all are known")
            pages = [page.SerializeToString() for page in status_pages(served)]
            pages.append(served.call(served.state.telemetry.metrics.render))
        finally:
            held.open(ALL_STEPS)
        for stream in streams:
            list(stream)
        served.wait_for_rest(sessions=1, live_blocks=served.stats().blocks_live)
        assert len(pages) > 10
        assert [page for page in pages if holds_it(page)] == []
        lines = served.log_lines()
        assert len(lines) >= 10
        assert [line for line in lines if holds_it(line.encode())] == []
        assert [refusal.message for refusal in refusals if holds_it(repr(refusal.trailing).encode())] == []
        assert calls.release("kept")
