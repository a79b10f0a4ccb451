"""Valid and invalid values of request fields, from docs/faults.md 15.2, and functions that list and set fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2

FILES = (admin_pb2, inference_pb2, model_pb2, tokenizer_pb2)
NAN, INF = float("nan"), float("inf")
U32, U64 = 2**32 - 1, 2**64 - 1
NOT_FINITE = (NAN, INF, -INF)


def seconds(whole: int, nanos: int = 0) -> Duration:
    return Duration(seconds=whole, nanos=nanos)


# Leaf of a SamplingOptions -> valid values, invalid values.
SAMPLING: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "temperature": ((0.0, -0.0, 1e-38, 100.0), (-1.0, 100.1, *NOT_FINITE)),
    "top_k": ((0, U32), ()),
    "top_p": ((1e-38, 1.0), (0.0, -0.1, 1.001, *NOT_FINITE)),
    "min_p": ((0.0, 1.0), (-0.1, 1.1, *NOT_FINITE)),
    "repetition_penalty": ((0.01, 100.0), (0.0, -1.0, 101.0, *NOT_FINITE)),
    "frequency_penalty": ((-2.0, 2.0), (-2.1, 2.1, *NOT_FINITE)),
    "presence_penalty": ((-2.0, 2.0), (-2.1, 2.1, *NOT_FINITE)),
    "logit_bias": (({0: -100.0, 2047: 100.0},), ({2048: 1.0}, {U32: 1.0}, {1: 100.1}, {1: NAN}, {1: -INF})),
    "seed": ((0, U64), ()),
    "penalty_window": ((0, U32), ()),
    "typical_p": ((1e-38, 1.0), (0.0, 1.1, *NOT_FINITE)),
    "dry.multiplier": ((0.0, 100.0), (-1.0, 100.1, *NOT_FINITE)),
    "dry.base": ((1.0, 100.0), (0.9, 100.1, *NOT_FINITE)),
    "dry.allowed_length": ((0, 1024), (1025, U32)),
    "dry.window": ((0, U32), ()),
    "dry.breakers": ((["b" * 64] * 16, ["b"]), (["b"] * 17, [""], ["b" * 65])),
}
STOP = {
    "max_tokens": ((0, U32), ()),
    "min_tokens": ((0,), ()),  # its bound is max_tokens
    "strings": ((["s" * 256] * 16, ["s"]), (["s"] * 17, [""], ["s" * 257])),
    "token_ids": (([0, 2047] * 128,), ([1] * 257, [2048], [2**31], [U32])),
    "ignore_eos": ((False, True), ()),
    "include_match": ((False, True), ()),
    "time_limit": (
        (seconds(0, 1), seconds(3600)),
        (seconds(0), seconds(-1), seconds(1, 10**9), seconds(1, -1), seconds(3600, 1), seconds(3601)),
    ),
}
OUTPUT = {
    "text": ((False, True), ()),
    "logprobs": ((False, True), ()),
    "top_logprobs": ((0, 20), (21, U32)),
    "prompt_logprobs": ((False, True), ()),
    "prompt_token_ids": ((False, True), ()),
    "max_chunk_tokens": ((1, 1024), (0, 1025, U32)),
    "max_chunk_delay": ((seconds(0), seconds(10)), (seconds(0, -1_000_000), seconds(10, 1_000_000), seconds(0, 10**9))),
    "special_tokens": ((False, True), ()),
    "parse": ((False, True), ()),
}
CACHE = {"bypass_prefix": ((False, True), ()), "salt": (("", "s" * 64), ("s" * 65, "é" * 33))}
STEP = {
    "sample": ((False, True), ()),
    "top_logprobs": ((0, 20), (21, U32)),
    "logits": ((False, True), ()),
    "scores": ((False, True), ()),
    "allowed_token_mask": ((b"\x01" + bytes(255),), (b"\x01", bytes(256), b"\x01" * 257)),
}
NAME = (("n" * 128, "!~"), ("n" * 129, "a\nb", "a\x1bb", "é", "a b"))
# Values for a limits.max_prompt_bytes of 1 KiB.
TEXT = (("t" * 1024,), ("t" * 1025,))


def under(prefix: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": values for name, values in fields.items()}


GENERATE = {
    "request_id": NAME,
    "model": (("imp demo", ""), ("m" * 257,)),
    **under("sampling", SAMPLING),
    **under("stop", STOP),
    **under("output", OUTPUT),
    **under("cache", CACHE),
    "num_sequences": ((1, 8), (0, 9, U32)),
    "sparse_prefill.policy": ((0, 1), (99, -1)),
    "sparse_prefill.keep": ((), (0.0, 1.1, *NOT_FINITE)),
    "sparse_prefill.backbone": ((), (-0.1, 1.1, *NOT_FINITE)),
    "speculation.enabled": ((False, True), ()),
    "speculation.max_draft_tokens": ((1, 64), (0, 65, U32)),
    "speculation.drafters": ((["ngram"],), (["ngramm"], ["grammar"], ["ngram", ""], ["ngram"] * 9)),
    "tool_choice": (("", "none", "auto"), ("any", "required ", "functions:f")),
    "max_reasoning_tokens": ((0, U32), ()),
}
PREFILL = {
    "session_id": NAME,
    "model": GENERATE["model"],
    "position": ((0, U32), ()),
    **under("sampling", SAMPLING),
    **under("step", STEP),
    "ttl": ((seconds(0, 1), seconds(3600)), (seconds(0), seconds(-1), seconds(3600, 1), seconds(1, 10**9))),
    **under("cache", CACHE),
    "base": ((0, U32), ()),
    "resumable": ((True,), ()),
}
SESSION_STEP = {
    "session_id": NAME,
    "token_ids": (([0, 2047] * 128,), ([1] * 257, [2048], [U32])),
    "position": ((0, U32), ()),
    **under("sampling", SAMPLING),
    **under("step", STEP),
}
# Members of a oneof of which one is always set, and fields that belong to one: other tests cover them.
APART = {
    "text",
    "token_ids.ids",
    "session_id",
    "parallel_tool_calls",
    *(f"chat.{name}" for name in ("tools_json", "add_generation_prompt", "continue_final_message")),
    *("chat.template_kwargs_json", "chat.documents_json"),
    *(f"chat.messages.{name}" for name in ("role", "content", "name", "tool_call_id", "tool_calls_json")),
    "chat.messages.reasoning_content",
    "chat.messages.null_content",
    *(f"{parts}.text" for parts in ("chat.messages.parts", "parts.parts")),
    "parts.parts.token_ids.ids",
    *(f"infill.{name}" for name in ("prefix", "suffix", "middle", "files.name", "files.text")),
    *(
        f"{parts}.image.{name}"
        for parts in ("chat.messages.parts", "parts.parts")
        for name in ("encoded", "raw.width", "raw.height", "raw.rgb", "max_tokens")
    ),
    *(f"constraint.{name}" for name in ("json_schema", "regex", "gbnf", "choices.values", "unbounded_whitespace")),
    # Of a stream that broke.
    *(f"resume.origin.{name}" for name in ("server", "request", "seed", "created")),
    *(f"resume.sequences.{name}" for name in ("token_ids", "finished")),
    *(f"resume.{name}" for name in ("text_from", "token_id", "taken")),
}


def request_messages() -> Iterator[Descriptor]:
    """Yields every message type that a caller can send, nested ones included, once each."""
    seen: dict[str, Descriptor] = {}
    pending = [
        method.input_type
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    while pending:
        message = pending.pop()
        if message.full_name not in seen and message.full_name.startswith("imp.v1."):
            seen[message.full_name] = message
            pending += [field.message_type for field in message.fields if field.message_type is not None]
    yield from seen.values()


def leaves(message: Descriptor, prefix: str = "") -> Iterator[tuple[str, FieldDescriptor]]:
    """Yields the dotted paths of all fields that hold values and not messages of imp.v1."""
    for field in message.fields:
        path = f"{prefix}{field.name}"
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        if inner is None or is_map or not inner.full_name.startswith("imp.v1."):
            yield path, field
        else:
            yield from leaves(inner, f"{path}.")


def put(message: Message, path: str, value: Any) -> None:
    """Sets the field at a dotted path."""
    *parents, name = path.split(".")
    target: Any = message
    for parent in parents:
        target = getattr(target, parent)
    if isinstance(value, Duration):
        getattr(target, name).CopyFrom(value)
    elif isinstance(value, list):
        getattr(target, name).extend(value)
    elif isinstance(value, dict):
        getattr(target, name).update(value)
    else:
        setattr(target, name, value)
