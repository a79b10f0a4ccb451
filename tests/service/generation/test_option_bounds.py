"""Python's options have the same bounds as the fields of requests, and an error names every wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from imp_service.api.errors import FieldsInvalid, invalid
from imp_service.api.facts import findings
from imp_service.api.options import (
    CacheOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.rules import token_violations
from imp_service.core import Error, InvalidArgument
from imp_service.generation.limits import ENGINE, EngineLimits, refuse_findings
from support.calls.request_fields import CACHE, OUTPUT, SAMPLING, STEP, STOP, U32, U64

N_TOKENS = 2048
LIMITS = EngineLimits(N_TOKENS, N_TOKENS)
MORE_THAN_THE_WIRE_CAN_SAY = {
    **dict.fromkeys(
        ("sampling.top_k", "sampling.penalty_window", "sampling.dry.window", "stop.max_tokens"), (-1, U32 + 1, 1.5)
    ),
    "sampling.seed": (-1, U64 + 1, 0.5, True),
    "sampling.temperature": ("1", True),
    "sampling.dry.allowed_length": (-1,),
    "sampling.logit_bias": (dict.fromkeys(range(1025), 1.0), {-1: 1.0}, {True: 1.0}, {"a": 1.0}, {1: -100.1}),
    "output.top_logprobs": (-1, 1.5),
    "stop.min_tokens": (-1,),
    "stop.strings": ("text", [1], ["\ud800"]),
    "stop.token_ids": ([-1], [True], [1.5]),
    "sampling.dry.breakers": ("text",),
    "cache.salt": (b"x",),
}
# Fields of messages only: they set how a reply is divided.
NOT_OF_OPTIONS = {"max_chunk_tokens", "max_chunk_delay"}


def request(path: str, value: Any) -> GenerationRequest:
    part, _, name = path.partition(".")
    if name.startswith("dry."):
        return GenerationRequest("a", sampling=SamplingOptions(dry=DryOptions(**{name.removeprefix("dry."): value})))
    make = {"sampling": SamplingOptions, "stop": StopOptions, "output": OutputOptions, "cache": CacheOptions}
    if not name:
        return GenerationRequest("a", **{part: value})
    return GenerationRequest("a", **{part: make[part](**{name: value})})


def cases() -> Iterator[tuple[str, Any, bool]]:
    tables = {"sampling": SAMPLING, "stop": STOP, "output": OUTPUT, "cache": CACHE}
    for part, table in tables.items():
        for name, (good, bad) in table.items():
            if name in NOT_OF_OPTIONS:
                continue
            yield from ((f"{part}.{name}", value, True) for value in good)
            yield from ((f"{part}.{name}", value, False) for value in bad)
    for path, values in MORE_THAN_THE_WIRE_CAN_SAY.items():
        yield from ((path, value, False) for value in values)
    yield from (("sampling.logit_bias", dict.fromkeys(range(1024), 1.0), True), ("sampling.seed", None, True))
    yield from (("priority", value, good) for value, good in ((-100, True), (100, True), (-101, False), (101, False)))
    yield from (("num_sequences", value, good) for value, good in ((1, True), (8, True), (0, False), (9, False)))
    yield from (("tenant", value, good) for value, good in (("", True), ("t" * 64, True), ("t" * 65, False)))


def in_seconds(value: Any) -> Any:
    return value.seconds + value.nanos / 1e9 if isinstance(value, Duration) else value


@pytest.mark.few(88)
@pytest.mark.parametrize(
    ("path", "value", "is_good"),
    [(path, value, good) for path, value, good in cases() if not isinstance(value, Duration)],
)
def test_rpc_4_rpc_6_an_option_of_python_is_judged_as_the_field_is(path: str, value: Any, is_good: bool) -> None:
    found = list(findings(request(path, value), LIMITS))
    assert (found == []) == is_good
    assert all(violation.path.startswith(path) and violation.message for violation in found)


@pytest.mark.parametrize(
    ("seconds", "is_good"), [(1e-9, True), (1e9, True), (0.0, False), (-1.0, False), (1.1e9, False)]
)
def test_rpc_4_a_time_limit_is_above_zero(seconds: float, is_good: bool) -> None:
    """Python's limit has no ceiling from a server's settings."""
    assert (list(findings(request("stop.time_limit", seconds), LIMITS)) == []) == is_good


@pytest.mark.parametrize(
    ("least", "most", "message"),
    [
        (5, 5, ""),
        (6, 5, "stop.min_tokens: 6, expected at most max_tokens = 5"),
        (6, None, ""),
        (1, -1, "stop.max_tokens: -1"),
    ],
)
def test_rpc_4_the_least_tokens_are_no_more_than_the_most(least: int, most: int | None, message: str) -> None:
    options = GenerationRequest("a", stop=StopOptions(max_tokens=most, min_tokens=least))
    found = [str(violation) for violation in findings(options, LIMITS)]
    assert len(found) == bool(message) and all(text.startswith(message) for text in found)


@pytest.mark.parametrize("name", [name for name in STEP if name in ("top_logprobs", "allowed_token_mask")])
def test_rpc_4_a_steps_options_are_judged_as_the_field_is(name: str) -> None:
    good, bad = STEP[name]
    for values, is_good in ((good, True), (bad, False)):
        for value in values:
            found = list(findings(StepOptions(**{name: value}), LIMITS, "step"))
            assert (found == []) == is_good
            assert all(violation.path == f"step.{name}" for violation in found)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (b"\x07", ""),
        (b"\x08", "a bit at or above 3"),
        (b"\x04", ""),
        (b"\x00", "allows no token"),
        (b"\x01\x00", "2 bytes, expected 1"),
    ],
)
def test_rpc_4_a_mask_has_bits_of_tokens_alone(mask: bytes, message: str) -> None:
    """A vocabulary may be padded: its last ids are no tokens."""
    found = [violation.message for violation in findings(StepOptions(allowed_token_mask=mask), EngineLimits(3, 5))]
    assert len(found) == bool(message) and all(message in text for text in found)


@pytest.mark.parametrize("place", [0, 8191, 8192, 9999])
@pytest.mark.parametrize("token", [-1, N_TOKENS, True, 1.0])
def test_rpc_4_each_id_of_a_long_prompt_is_judged(place: int, token: Any) -> None:
    tokens: list[Any] = [N_TOKENS - 1, 0] * 5000
    assert list(token_violations("prompt", tokens, N_TOKENS)) == []
    tokens[place] = token
    assert [violation.path for violation in token_violations("prompt", tokens, N_TOKENS)] == [f"prompt[{place}]"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("sampling.temperature", 100.5, "sampling.temperature: 100.5, expected 0 to 100"),
        ("sampling.top_p", 0.0, "sampling.top_p: 0.0, expected above 0 up to 1"),
        ("sampling.top_k", 1.5, "sampling.top_k: 1.5, expected a whole number"),
        ("sampling.min_p", "x", "sampling.min_p: 'x', expected a number"),
        (
            "stop.strings",
            ["", "é" * 129],
            "stop.strings[0]: 0 bytes, expected 1 to 256; stop.strings[1]: 258 bytes, expected 1 to 256",
        ),
        ("stop.strings", ["a\ud800"], "stop.strings[0]: a surrogate at character 1"),
        ("stop.strings", "abc", "stop.strings: 'abc', expected a list of texts"),
        ("stop.token_ids", [2048], "stop.token_ids[0]: token 2048, expected below 2048, the number of tokens"),
        ("stop.token_ids", [1] * 257, "stop.token_ids: 257 entries, expected 0 to 256"),
        ("cache.salt", b"x", "cache.salt: b'x', expected a text"),
    ],
)
def test_rpc_6_a_violation_says_what_was_said_and_what_was_expected(path: str, value: Any, message: str) -> None:
    with pytest.raises(FieldsInvalid) as caught:
        refuse_findings(findings(request(path, value), LIMITS))
    assert caught.value.message == message


def test_rpc_6_all_violations_are_reported_at_once() -> None:
    request = GenerationRequest(
        "a",
        sampling=SamplingOptions(temperature=101, top_p=0),
        stop=StopOptions(strings=["a", ""]),
        num_sequences=9,
    )
    with pytest.raises(FieldsInvalid) as raised:
        refuse_findings(findings(request, ENGINE))
    paths = [violation.path for violation in raised.value.violations]
    assert paths == ["sampling.temperature", "sampling.top_p", "stop.strings[1]", "num_sequences"]
    assert isinstance(raised.value, InvalidArgument) and isinstance(raised.value, Error)
    assert raised.value.reason == "FIELD_INVALID"
    assert raised.value.message.count("; ") == 3
    assert str(raised.value) == f"FIELD_INVALID: {raised.value.message}"


def test_an_error_of_one_field_has_its_path() -> None:
    error = invalid("num_sequences", "2, expected 1: a session has one")
    assert [(v.path, v.message) for v in error.violations] == [("num_sequences", "2, expected 1: a session has one")]
