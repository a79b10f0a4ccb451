"""VllmEngine's Generate returns the same tokens and scores as imp.v1's, whole and in streams, and ends as it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as vllm

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.calls.generations import in_one
from support.calls.vllm_calls import COMPAT, answered, asking, comparable, prompt_scores, scored, stub
from support.servers.served import Served, serve

OFF = {"top_k": 0, "min_p": 0.0}
PROMPT = [300, 301, 302, 303, 304]
# Parameters of the caller -> the equivalent fields of imp.v1.
CASES: Mapping[str, tuple[dict[str, Any], pb.GenerateRequest]] = {
    "greedy": (
        {"max_tokens": 20},
        pb.GenerateRequest(
            sampling=types_pb2.SamplingOptions(temperature=0.0, **OFF), stop=types_pb2.StopOptions(max_tokens=20)
        ),
    ),
    "seeded": (
        {"max_tokens": 20, "temperature": 1.5, "seed": 7, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "n": 3},
        pb.GenerateRequest(
            sampling=types_pb2.SamplingOptions(temperature=1.5, seed=7, top_p=0.9, top_k=50, min_p=0.01),
            stop=types_pb2.StopOptions(max_tokens=20),
            num_sequences=3,
        ),
    ),
    "penalised": (
        {
            "max_tokens": 24,
            "min_tokens": 5,
            "ignore_eos": True,
            "repetition_penalty": 1.3,
            "frequency_penalty": 0.5,
            "presence_penalty": 0.25,
            "logit_bias": {350: 2.0},
            "logprobs": 3,
        },
        pb.GenerateRequest(
            sampling=types_pb2.SamplingOptions(
                temperature=0.0,
                repetition_penalty=1.3,
                frequency_penalty=0.5,
                presence_penalty=0.25,
                logit_bias={350: 2.0},
                **OFF,
            ),
            stop=types_pb2.StopOptions(max_tokens=24, min_tokens=5, ignore_eos=True),
            output=types_pb2.OutputOptions(logprobs=True, top_logprobs=3),
        ),
    ),
    "constrained": (
        {"max_tokens": 24, "seed": 5, "temperature": 1.0, "regex": "[a-z]{8}-[0-9]{9}"},
        pb.GenerateRequest(
            sampling=types_pb2.SamplingOptions(temperature=1.0, seed=5, **OFF),
            stop=types_pb2.StopOptions(max_tokens=24),
            constraint=types_pb2.Constraint(regex="[a-z]{8}-[0-9]{9}"),
        ),
    ),
    "stopped": (
        {"max_tokens": 64, "stop": ["the"], "logprobs": 0},
        pb.GenerateRequest(
            sampling=types_pb2.SamplingOptions(temperature=0.0, **OFF),
            stop=types_pb2.StopOptions(max_tokens=64, strings=["the"]),
            output=types_pb2.OutputOptions(logprobs=True),
        ),
    ),
}
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def imp_request(fields: pb.GenerateRequest) -> pb.GenerateRequest:
    request = pb.GenerateRequest(token_ids=types_pb2.TokenIds(ids=PROMPT))
    request.MergeFrom(fields)
    return request


@pytest.mark.few(3)
@STREAM
@pytest.mark.parametrize("case", CASES)
def test_gwy_3_the_tokens_are_those_of_generate(served: Served, case: str, stream: bool) -> None:
    params, fields = CASES[case]
    expected = in_one(served, imp_request(fields))
    n = params.get("n", 1)
    found = answered(list(stub(served).Generate(asking(PROMPT, stream=stream, **params))), n)
    assert [scored(output) for output in found] == comparable(expected)
    assert all(output.ids for output in found)
    other = answered(list(stub(served).Generate(asking(PROMPT[:-1], stream=stream, **params))), n)
    assert [output.ids for output in other] != [output.ids for output in found]


def test_gwy_3_a_text_is_tokenized_as_in_generate(served: Served) -> None:
    request = pb.GenerateRequest(text="Once upon a time", sampling=types_pb2.SamplingOptions(temperature=0.0))
    request.stop.max_tokens = 8
    expected = in_one(served, request)
    (end,) = stub(served).Generate(asking("Once upon a time", max_tokens=8))
    assert list(end.complete.output_ids) == expected.output.ids
    assert end.complete.prompt_tokens == expected.started.prompt_tokens > 0


def test_gwy_3_without_parameters_the_defaults_of_the_model_hold(served: Served) -> None:
    request = vllm.GenerateRequest(text="the cat")
    request.sampling_params.MergeFrom(vllm.SamplingParams(seed=3, max_tokens=8))
    fields = pb.GenerateRequest(text="the cat", sampling=types_pb2.SamplingOptions(seed=3, **OFF))
    fields.stop.max_tokens = 8
    (output,) = answered(list(stub(served).Generate(request)))
    assert output.ids == in_one(served, fields).output.ids


@STREAM
def test_gwy_3_ends_say_why(served: Served, stream: bool) -> None:
    def end(**params: Any) -> tuple[str, Any]:
        (output,) = answered(list(stub(served).Generate(asking(PROMPT, stream=stream, **params))))
        return output.reason, output.match

    free = in_one(served, imp_request(CASES["greedy"][1])).output.ids
    assert end(max_tokens=3) == ("length", None)
    assert end(max_tokens=64, stop=["the"]) == ("stop", ("matched_stop_str", "the"))
    assert end(max_tokens=64, stop_token_ids=[free[4]]) == ("stop", ("matched_token_id", free[4]))
    # As in vLLM, the model's end token is no match.
    (eos, *_) = served.state.model.eos_tokens
    assert end(max_tokens=64, logit_bias={eos: 100.0}) == ("stop", None)


def test_gwy_3_a_stream_is_chunks_and_then_an_end_for_each_sequence(served: Served) -> None:
    messages = list(stub(served).Generate(asking(PROMPT, stream=True, n=2, seed=1, temperature=1.0, max_tokens=9)))
    for index in (0, 1):
        mine = [m for m in messages if getattr(m, m.WhichOneof("response")).index == index]
        *chunks, end = mine
        assert [m.WhichOneof("response") for m in mine] == ["chunk"] * len(chunks) + ["complete"]
        assert sum(m.chunk.completion_tokens for m in chunks) == end.complete.completion_tokens
        assert {m.chunk.prompt_tokens for m in chunks} == {end.complete.prompt_tokens} == {len(PROMPT)}
        assert list(end.complete.output_ids) == []


@STREAM
def test_gwy_3_scores_of_the_prompt_are_those_of_generate(served: Served, stream: bool) -> None:
    fields = pb.GenerateRequest(
        sampling=types_pb2.SamplingOptions(temperature=0.0),
        stop=types_pb2.StopOptions(max_tokens=2),
        output=types_pb2.OutputOptions(prompt_logprobs=True, top_logprobs=4),
        num_sequences=2,
    )
    expected = in_one(served, imp_request(fields)).started.prompt
    params = {"max_tokens": 2, "n": 2, "prompt_logprobs": 2}
    messages = list(stub(served).Generate(asking(PROMPT, stream=stream, logprobs=4, **params)))
    parts = [getattr(m, m.WhichOneof("response")) for m in messages]
    with_scores = [part for part in parts if part.HasField("input_logprobs")]
    assert sorted(part.index for part in with_scores) == [0, 1]
    for part in with_scores:
        ids, values, tops = prompt_scores(part.input_logprobs)
        assert ids == PROMPT
        assert math.isnan(values[0])
        assert values[1:] == list(expected.logprobs)[1:]
        # Each kind has as many candidates as requested.
        wanted = [[(item.token_id, item.logprob) for item in row.items[:2]] for row in expected.candidates]
        assert tops == wanted
    assert {len(top.values) for part in parts for top in part.output_logprobs.top_logprobs} == {4}


def test_gwy_3_cached_tokens_are_counted(served: Served) -> None:
    prompt = [400 + i for i in range(64)]
    for n_cached in (0, 48):
        (message,) = stub(served).Generate(asking(prompt, max_tokens=1))
        assert message.complete.prompt_tokens == 64
        assert message.complete.cached_tokens >= n_cached
    assert message.complete.cached_tokens > 0


def test_gwy_3_a_caller_that_leaves_frees_its_sequence(counting: Served) -> None:
    call = stub(counting).Generate(asking([300], stream=True))
    assert next(call).chunk.token_ids[0] == 301
    call.cancel()
    counting.wait_for_rest()
    counting.wait_for_calls()
    with pytest.raises(grpc.RpcError) as raised:
        list(call)
    assert raised.value.code() is grpc.StatusCode.CANCELLED


def test_gwy_3_n12_abort_ends_requests_of_the_same_tenant(counting: Served) -> None:
    engine = stub(counting)
    acme = (("imp-tenant", "acme"),)
    call = engine.Generate(asking([300], stream=True, request_id="r", ignore_eos=True), metadata=acme)
    messages = [next(call)]
    # Ids of another tenant and unknown ids are ignored.
    assert engine.Abort(vllm.AbortRequest(request_ids=["r", "unknown"])) == vllm.AbortResponse()
    n_left_alone = len(messages[0].chunk.token_ids) + 1000
    while sum(len(message.chunk.token_ids) for message in messages) < n_left_alone:
        messages.append(next(call))
    engine.Abort(vllm.AbortRequest(request_ids=["r"]), metadata=acme)
    (output,) = answered([*messages, *call])
    assert output.reason == "abort"
    assert len(output.ids) > n_left_alone
    counting.wait_for_rest()


def test_gwy_3_errors_are_those_of_imp(served: Served) -> None:
    n = served.state.model.max_context + 1
    found = failed(lambda: list(stub(served).Generate(asking([300] * n))))
    assert (found.code, found.reason) == ("OUT_OF_RANGE", "CONTEXT_TOO_LONG")
    found = failed(lambda: list(stub(served).Generate(asking(PROMPT), timeout=0.000001)))
    assert found.code == "DEADLINE_EXCEEDED"


def test_gwy_3_two_requests_have_two_ids(counting: Served) -> None:
    engine = stub(counting)
    running = engine.Generate(asking([300], stream=True, request_id="twice", ignore_eos=True))
    next(running)
    found = failed(lambda: list(engine.Generate(asking([300], request_id="twice"))))
    assert (found.code, found.reason) == ("ALREADY_EXISTS", "REQUEST_ID_IN_USE")
    running.cancel()
    counting.wait_for_rest()


def test_gwy_3_an_answer_that_could_be_too_large_is_refused() -> None:
    with serve(COMPAT, "limits.max_message_bytes=64KiB") as served:
        found = failed(lambda: list(stub(served).Generate(asking([300] * 480, prompt_logprobs=20, max_tokens=1))))
        assert (found.code, found.paths) == ("INVALID_ARGUMENT", ["sampling_params.prompt_logprobs"])
        engine = stub(served)
        (found,) = (m.complete for m in engine.Generate(asking([300] * 200, prompt_logprobs=20, max_tokens=1)))
        assert len(found.input_logprobs.top_logprobs) == 200


@pytest.mark.long
def test_gwy_3_a_feature_that_is_off_is_named_in_the_words_of_the_caller() -> None:
    with serve(COMPAT, "features.prompt_logprobs=false") as served:
        found = failed(lambda: list(stub(served).Generate(asking([300], prompt_logprobs=1))))
        assert (found.code, found.reason) == ("FAILED_PRECONDITION", "FEATURE_DISABLED")
        assert found.metadata["feature"] == "sampling_params.prompt_logprobs"
        assert found.message.startswith("sampling_params.prompt_logprobs: ")
