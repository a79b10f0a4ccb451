"""Bytes that no correct client sends end like any bad request, and the server goes on."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.internal import api_implementation

from imp_service.pb import admin_pb2, inference_pb2, tokenizer_pb2, types_pb2
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.server import GrpcServer, require_native_runtime
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.calls.filled_messages import filled
from support.calls.request_fields import FILES
from support.calls.status_checker import check_status
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.served import Served, ask, serve

# Varints that are bad lengths.
LENGTHS = (0, 1, 127, 128, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def varint(value: int) -> bytes:
    """Encodes a varint: seven bits in each byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def hostile_shapes() -> list[bytes]:
    """Returns hostile messages, each of which is a whole request."""
    return [
        b"\x0b" * 10_000,  # groups without an end
        b"\x0b" * 10_000 + b"\x0c" * 10_000,
        b"\x0c",
        *(bytes([number << 3 | 2]) + varint(length) for number in (1, 3, 4, 7) for length in LENGTHS),
        *(bytes([number << 3 | wire]) + b"\xff" * 9 + b"\x01" for number in (1, 7, 12) for wire in range(8)),
        b"\xff" * 11,
        b"\x00",
        b"\x1a\x02\xc3\x28",  # text that is not UTF-8
        b"\x22\x06\x0a\x04\xff\xff\xff\xff",
        (b"\x2a" + varint(2**20) + b"\x0a" * 2**20),
    ]


def mutations(seeds: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yields `count` mutated messages, the same for the same seed."""
    chosen = random.Random(seed)
    for _ in range(count):
        content = bytearray(chosen.choice(seeds))
        for _ in range(chosen.choice((1, 1, 1, 2, 4, 8))):
            chosen.choice(WAYS)(content, chosen, seeds)
        yield bytes(content)


Way = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def _flip(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    if content:
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)


def _cut(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    del content[chosen.randint(0, len(content)) :]


def _drop(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    start = chosen.randint(0, len(content))
    del content[start : start + chosen.randint(1, 8)]


def _put_in(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    at = chosen.randint(0, len(content))
    content[at:at] = varint(chosen.choice(LENGTHS)) if chosen.random() < 0.5 else chosen.randbytes(chosen.randint(1, 6))


def _splice(content: bytearray, chosen: random.Random, seeds: Sequence[bytes]) -> None:
    other = chosen.choice(seeds)
    start = chosen.randint(0, len(other))
    at = chosen.randint(0, len(content))
    content[at:at] = other[start : start + chosen.randint(1, 40)]


def _replace(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    if content:
        at = chosen.randrange(len(content))
        content[at : at + 1] = varint(chosen.choice(LENGTHS))


WAYS: tuple[Way, ...] = (_flip, _flip, _cut, _drop, _put_in, _splice, _replace)


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
        GrpcServer(cast(ServerState, None), cast(Access, None))


def test_the_mutator_gives_the_same_for_the_same_seed() -> None:
    seeds = [inference_pb2.GenerateRequest(text="a").SerializeToString()]
    assert list(mutations(seeds, 3, 20)) == list(mutations(seeds, 3, 20)) != list(mutations(seeds, 4, 20))
