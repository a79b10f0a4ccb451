"""Bytes that no correct client sends end like any bad request, and the server goes on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import cast

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.internal import api_implementation

from imp_service.pb import admin_pb2, inference_pb2, tokenizer_pb2, types_pb2
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.server import Server, require_native_runtime
from imp_service.serving.host import Host
from imp_service.serving.security.access import Access
from support.filled_messages import filled
from support.patience import HANGS_AFTER
from support.quick_run import Repeats
from support.release_run import repetitions
from support.request_fields import FILES
from support.served import Served, ask, serve
from support.status_checker import check_status
from support.wire_mutator import hostile_shapes, mutations

# Mutants of each method: about 100,000 in all in the release run.
COUNT = int(os.environ.get("IMP_WIRE_MUTANTS", repetitions(5_000, 40)))
# A mutant may be a valid request: it must not run long.
SMALL = ("limits.max_tokens=8", "limits.request_time=2s", "sessions.max=8", "limits.max_prompt_bytes=4KiB")
# Valid requests: their mutants get further than random bytes.
SOUND = {
    "Generate": ask([300, 301], 3, stop=types_pb2.StopOptions(strings=["x"], token_ids=[5])),
    "GenerateUnary": pb.GenerateUnaryRequest(request=ask("the cat", 3)),
    "Prefill": pb.PrefillRequest(text="a", session_id="s", position=0, step=pb.StepOptions(top_logprobs=2)),
    "DecodeStep": pb.DecodeStepRequest(steps=[pb.SessionStep(session_id="s", token_ids=[5])]),
    "DecodeStream": pb.DecodeStreamRequest(prefill=pb.PrefillRequest(text="a")),
    "Tokenize": tokenizer_pb2.TokenizeRequest(texts=["a", "b"], offsets=True),
    "Detokenize": tokenizer_pb2.DetokenizeRequest(token_ids=[types_pb2.TokenIds(ids=[1, 2])]),
}
METHODS = [
    method
    for file in FILES
    if file is not admin_pb2
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name != "WatchLoad"
]


def answer(channel: grpc.Channel, method: MethodDescriptor, content: bytes) -> str:
    """Returns the status code of a request of these bytes."""
    make = channel.stream_stream if method.client_streaming else channel.unary_stream
    path = f"/{method.containing_service.full_name}/{method.name}"
    call = make(path, request_serializer=lambda raw: raw)(
        iter([content]) if method.client_streaming else content, timeout=HANGS_AFTER
    )
    try:
        list(call)
    except grpc.RpcError:
        check_status(call.code(), call.details(), call.trailing_metadata() or ())
    return str(call.code().name)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(*SMALL) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_p30_rpc_41_mutated_messages_end_their_own_call_only(
    served: Served, method: MethodDescriptor, repeats: Repeats
) -> None:
    seeds = [filled(method.input_type, i).SerializeToString() for i in range(4)]
    sound = SOUND.get(method.name)
    if sound is not None:
        seeds += [sound.SerializeToString()] * 4
    ends: Counter[str] = Counter()
    with grpc.insecure_channel(served.address) as channel:
        for content in (*hostile_shapes(), *mutations(seeds, seed=len(method.name), count=repeats(COUNT))):
            ends[answer(channel, method, content)] += 1
    assert ends.keys() <= {
        "OK",
        "INVALID_ARGUMENT",
        "OUT_OF_RANGE",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "ABORTED",
        "RESOURCE_EXHAUSTED",
        "UNIMPLEMENTED",
    }
    assert ends["INVALID_ARGUMENT"] > 10


def test_p30_a_server_does_not_parse_strangers_messages_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    require_native_runtime()
    monkeypatch.setattr(api_implementation, "Type", lambda: "python")
    with pytest.raises(RuntimeError, match="upb"):
        Server(cast(Host, None), cast(Access, None))


def test_the_mutator_gives_the_same_for_the_same_seed() -> None:
    seeds = [inference_pb2.GenerateRequest(text="a").SerializeToString()]
    assert list(mutations(seeds, 3, 20)) == list(mutations(seeds, 3, 20)) != list(mutations(seeds, 4, 20))
