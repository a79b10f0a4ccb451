"""A refused call leaves no objects behind, even before a garbage collection."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

import grpc
import pytest
from google.protobuf.message import Message

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import tokenizer_pb2 as tok
from imp_service.rpc.call import GrpcCall
from support.calls.raw_calls import call
from support.servers.served import Served, serve

LONG = "Once upon a time. " * 20_000
INFERENCE, TOKENIZER = "/imp.v1.InferenceService/", "/imp.v1.TokenizerService/"

REFUSED: dict[str, tuple[str, Message | bytes]] = {
    "too long": (INFERENCE + "Generate", pb.GenerateRequest(text=LONG)),
    "too long, one reply": (
        INFERENCE + "GenerateUnary",
        pb.GenerateUnaryRequest(request=pb.GenerateRequest(text=LONG)),
    ),
    "too long chat": (
        INFERENCE + "Generate",
        pb.GenerateRequest(chat={"messages": [{"role": "user", "content": LONG}]}),
    ),
    "too long session": (INFERENCE + "Prefill", pb.PrefillRequest(text=LONG)),
    "too many ids": (INFERENCE + "Prefill", pb.PrefillRequest(token_ids={"ids": [1] * 100_000})),
    "field": (INFERENCE + "Generate", pb.GenerateRequest(text=LONG, sampling={"temperature": -1})),
    "model": (INFERENCE + "Generate", pb.GenerateRequest(text=LONG, model="none")),
    "session": (INFERENCE + "DecodeStep", pb.DecodeStepRequest(steps=[{"session_id": "none", "token_ids": [1] * 200}])),
    "in a stream": (INFERENCE + "DecodeStream", pb.DecodeStreamRequest(prefill={"text": LONG})),
    "texts": (TOKENIZER + "Tokenize", tok.TokenizeRequest(texts=[LONG] * 4)),
    "ids": (TOKENIZER + "Detokenize", tok.DetokenizeRequest(token_ids=[{"ids": [2**31] * 1000}])),
    "template": (
        TOKENIZER + "ApplyChatTemplate",
        tok.ApplyChatTemplateRequest(chat={"messages": [{"role": "x" * 99}]}),
    ),
    "too large": (INFERENCE + "Generate", b"\xff" * (5 * 1024**2)),
    "bytes": (INFERENCE + "Generate", b"\xff" * 100_000),
    "feature": (INFERENCE + "Embed", pb.EmbedRequest(texts=[LONG])),
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as served:
        yield served


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    """A client that creates no messages: all messages found are the server's."""
    with grpc.insecure_channel(served.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def held() -> Counter[str]:
    """Counts the calls, messages and frames that the process holds."""
    kinds: Counter[str] = Counter()
    for each in gc.get_objects():
        # By type only: some objects of other libraries warn when their class is read.
        kind = type(each)
        if kind is GrpcCall or (issubclass(kind, Message) and each.DESCRIPTOR.file.package == "imp.v1"):
            kinds[kind.__name__] += 1
        elif kind is FrameType and "imp_service" in each.f_code.co_filename:
            kinds[each.f_code.co_qualname] += 1
    return kinds


def left_by(served: Served, act: Callable[[], object]) -> dict[str, int]:
    """Returns the objects that several calls leave behind without a collection."""
    act()
    served.wait_for_calls()
    gc.collect()
    gc.disable()
    try:
        before = served.call(held)
        for _ in range(5):
            act()
            served.wait_for_calls()
        after = served.call(held)
    finally:
        gc.enable()
    return {kind: n - before[kind] for kind, n in after.items() if n - before[kind] >= 5}


@pytest.mark.long
@pytest.mark.parametrize("how", REFUSED)
def test_o17_a_refused_call_leaves_nothing(how: str, served: Served, channel: grpc.Channel) -> None:
    method, request = REFUSED[how]
    content = request if isinstance(request, bytes) else request.SerializeToString()

    def refused() -> None:
        ended = call(channel, method, content)
        assert ended.code != "OK" or pb.DecodeStreamResponse.FromString(ended.replies[0]).HasField("error")

    assert left_by(served, refused) == {}


@pytest.mark.long
def test_o17_a_step_that_fails_beside_another_leaves_nothing(served: Served, channel: grpc.Channel) -> None:
    opened = call(channel, INFERENCE + "Prefill", pb.PrefillRequest(text="Once").SerializeToString())
    session_id = pb.PrefillResponse.FromString(opened.replies[0]).session_id
    steps = pb.DecodeStepRequest(steps=[{"session_id": session_id}, {"session_id": "b", "token_ids": [1] * 200}])

    def half_refused() -> None:
        ended = call(channel, INFERENCE + "DecodeStep", steps.SerializeToString())
        assert ended.code == "OK"

    try:
        assert left_by(served, half_refused) == {}
    finally:
        release = pb.ReleaseSessionRequest(session_id=session_id)
        call(channel, INFERENCE + "ReleaseSession", release.SerializeToString())


def test_o17_a_call_that_its_caller_cancels_leaves_nothing(served: Served, channel: grpc.Channel) -> None:
    request = pb.GenerateRequest(text="Once upon a time", stop={"ignore_eos": True}).SerializeToString()
    assert left_by(served, lambda: call(channel, INFERENCE + "Generate", request, n_replies=2)) == {}


@pytest.mark.long
def test_o17_a_call_that_is_late_leaves_nothing(served: Served, channel: grpc.Channel) -> None:
    request = pb.GenerateRequest(text="Once upon a time", stop={"ignore_eos": True}).SerializeToString()

    def late() -> None:
        with pytest.raises(grpc.RpcError):
            list(channel.unary_stream(INFERENCE + "Generate")(request, timeout=0.02))

    assert left_by(served, late) == {}
